"""Evaluates closed expressions with mpmath, at a given number of decimal digits."""

from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import cache
from typing import Any

import mpmath

from unprm.answers.mathtext.arithmetic import Arithmetic
from unprm.answers.mathtext.determinants import determinant
from unprm.answers.mathtext.exact import NotExact, TooBig, Undefined
from unprm.answers.mathtext.keys import ABSORBED, Absorbed, approximate_key, complex_key
from unprm.answers.mathtext.tree import Call, Node, Number, Symbol, Unreadable, mapped

Value = Any  # a real or complex number of the context: mpmath has no types

PRECISIONS = (130, 200, 420)  # decimal digits; two consecutive ones must agree
_AGREE = 100  # digits
_TRIGONOMETRIC = frozenset(["sin", "cos", "tan", "sec", "csc", "cot"])
_MAX_POWER = 10**6  # exponent of 2 beyond which a value is far too large or small
MAX_LOOP = 2000  # terms of a finite sum or product
_MAX_GAMMA = 10**4
_FAR = 40  # arguments beyond 10**40, or nearer to 0 than 10**-40, lose more digits than are computed


class Numeric:
    """Evaluates closed trees to `digits` digits. `real` makes roots and logarithms of negatives undefined.

    Raises `Undefined`, `TooBig`, `Absorbed`, and `Unreadable` for what isn't a number."""

    def __init__(self, digits: int, *, real: bool) -> None:
        self.ctx = mpmath.MPContext()
        self.ctx.dps = digits
        self.real = real
        self.tiny = self.ctx.mpf(10) ** (15 - digits)
        self.absorbed = self.ctx.mpf(10) ** -ABSORBED
        self.exact = Arithmetic(loop=MAX_LOOP)

    def value(self, node: Node) -> Value:
        """The value of a closed tree."""
        match node:
            case Number(value, _):
                return self._rational(value)
            case Symbol("\\pi"):
                return +self.ctx.pi
            case Symbol("e"):
                return +self.ctx.e
            case Symbol("i"):
                return self.ctx.mpc(0, 1)
            case Call(head, args):
                return self._cleaned(self._call(head, args))
        raise Unreadable("not a number")

    def _rational(self, value: Fraction) -> Value:
        """A rational, rounded."""
        return self.ctx.mpf(value.numerator) / value.denominator

    def _cleaned(self, value: Value) -> Value:
        """The value without a real or imaginary part that is only rounding noise."""
        if isinstance(value, self.ctx.mpf):
            return value
        real, imaginary = value.real, value.imag
        if abs(imaginary) <= abs(real) * self.tiny:
            return real
        return self.ctx.mpc(0, imaginary) if abs(real) <= abs(imaginary) * self.tiny else value

    def _call(self, head: str, args: tuple[Node, ...]) -> Value:
        match head:
            case "+":
                return self._total([self.value(arg) for arg in args])
            case "sum":
                return self._total([self.value(term) for term in self._loop(args)])
            case "*" | "prod":
                return self.ctx.fprod(self.value(arg) for arg in (args if head == "*" else self._loop(args)))
            case "^":
                return self._power(self.value(args[0]), self.value(args[1]), self._rational_value(args[1]))
            case "root":
                degree = self._rational_value(args[1])
                if not degree:
                    raise Unreadable("a root without a degree")
                return self._power(self.value(args[0]), self._rational(1 / degree), 1 / degree)
            case "det":
                cells = [self.value(arg) for arg in args]
                return determinant(cells, lambda a, b: a * b, self._total, lambda a: -a)
        if head in _TRIGONOMETRIC:
            return self._trigonometric(head, self.value(_in_radians(args[0])))
        if head not in _FUNCTIONS:
            raise Unreadable(head)
        return _FUNCTIONS[head](self, [self.value(arg) for arg in args])

    def _loop(self, args: tuple[Node, ...]) -> tuple[Node, ...]:
        try:
            return self.exact.loop_terms(args)
        except NotExact:
            raise Unreadable("a sum over symbolic bounds") from None

    def _rational_value(self, node: Node) -> Fraction | None:
        """The value as a rational, if it is certainly one."""
        try:
            return self.exact.value(node).rational()
        except NotExact:
            return None

    def _total(self, values: Sequence[Value]) -> Value:
        parts = [
            self._real_total([self.ctx.mpf(getattr(value, part)) for value in values]) for part in ("real", "imag")
        ]
        return parts[0] if parts[1] == 0 else self.ctx.mpc(*parts)

    def _real_total(self, values: list[Value]) -> Value:
        """The sum. What cancels down to rounding noise is 0; a term that would vanish beside the rest is
        refused."""
        total = self.ctx.mpf(0)
        for value in values:
            largest, smallest = max(abs(total), abs(value)), min(abs(total), abs(value))
            if 0 < smallest < largest * self.absorbed:
                raise Absorbed
            total += value
            if abs(total) <= largest * self.tiny:
                total = self.ctx.mpf(0)
        return total

    def _power(self, base: Value, exponent: Value, rational: Fraction | None) -> Value:
        """The power; with an exponent of odd denominator the real one of a negative base."""
        if base == 0:
            if self.ctx.re(exponent) <= 0:
                raise Undefined
            return base
        self._check_size(base, exponent)
        if rational is not None and rational.denominator == 1:
            return base ** int(rational)
        if isinstance(base, self.ctx.mpf) and base < 0:
            if rational is not None and rational.denominator % 2:
                root = self.ctx.power(-base, exponent)
                return -root if rational.numerator % 2 else root
            if self.real:
                raise Undefined
        return self.ctx.power(base, exponent)

    def _check_size(self, base: Value, exponent: Value) -> None:
        size = abs(exponent * self.ctx.log(base))
        if size > _MAX_POWER or self.ctx.mag(exponent) > 64:
            raise TooBig
        if 0 < size < self.ctx.mpf(10) ** -_FAR:
            raise Absorbed

    def _checked(self, argument: Value) -> Value:
        """An argument at which functions don't lose digits."""
        size = abs(argument)
        if size != 0 and not self.ctx.mpf(10) ** -_FAR < size < self.ctx.mpf(10) ** _FAR:
            raise Absorbed
        return argument

    def _trigonometric(self, head: str, angle: Value) -> Value:
        if abs(self.ctx.im(angle)) > 1000:
            raise TooBig
        sine, cosine = (self._snapped(part) for part in self.ctx.cos_sin(self._checked(angle))[::-1])
        match head:
            case "sin":
                return sine
            case "cos":
                return cosine
            case "tan":
                return self._quotient(sine, cosine)
            case "cot":
                return self._quotient(cosine, sine)
        return self._quotient(self.ctx.mpf(1), cosine if head == "sec" else sine)

    def _snapped(self, value: Value) -> Value:
        """Exactly 0, 1 or -1 if the value is that up to rounding noise."""
        for whole in (0, 1, -1):
            if abs(value - whole) <= self.tiny:
                return self.ctx.mpf(whole)
        return value

    def _quotient(self, over: Value, under: Value) -> Value:
        if under == 0:
            raise Undefined
        return over / under

    def _logarithm(self, argument: Value) -> Value:
        if argument == 0 or (self.real and isinstance(argument, self.ctx.mpf) and argument < 0):
            raise Undefined
        if self.ctx.mag(argument) > _MAX_POWER:
            raise TooBig
        return self._snapped(self.ctx.log(argument))

    def _exponential(self, function: Callable[[Value], Value], argument: Value) -> Value:
        if abs(argument) > _MAX_POWER:
            raise TooBig
        return function(self._checked(argument))

    def _hyperbolic_tangent(self, argument: Value) -> Value:
        if abs(argument) > _FAR:  # it would be 1 to all digits of its key
            raise Absorbed
        return self.ctx.tanh(self._checked(argument))

    def _gamma(self, argument: Value) -> Value:
        if abs(argument) > _MAX_GAMMA:
            raise TooBig
        if self.ctx.isint(argument) and self.ctx.re(argument) <= 0:
            raise Undefined
        return self.ctx.gamma(argument)

    def _inverse_sine(self, head: str, argument: Value) -> Value:
        argument = self._snapped(self._checked(argument))
        if self.real and (not isinstance(argument, self.ctx.mpf) or abs(argument) > 1):
            raise Undefined
        return self.ctx.asin(argument) if head == "arcsin" else self.ctx.acos(argument)

    def _whole(self, value: Value, rounding: Callable[[Value], Value]) -> Value:
        """floor or ceil; refused if the value is so near an integer that rounding could decide."""
        if not isinstance(value, self.ctx.mpf):
            raise Unreadable("the floor of a complex number")
        if abs(value) > 10**_FAR or 0 < abs(value - self.ctx.nint(value)) < self.ctx.mpf(10) ** -_FAR:
            raise Absorbed
        return rounding(value)

    def _extreme(self, values: list[Value], choice: Callable[[list[Value]], Value]) -> Value:
        if not all(isinstance(value, self.ctx.mpf) for value in values):
            raise Unreadable("an order of complex numbers")
        return choice(values)

    def _binomial(self, values: list[Value]) -> Value:
        if any(abs(value) > _MAX_GAMMA for value in values):
            raise TooBig
        return self.ctx.binomial(*values)


def _in_radians(node: Node) -> Node:
    if isinstance(node, Call) and node.head == "°":
        return Call("*", (node.args[0], Symbol("\\pi"), Number(Fraction(1, 180))))
    return mapped(node, _in_radians)


def _logarithm(numeric: Numeric, values: list[Value]) -> Value:
    """The logarithm; base 10 if none is given, as in school; ``\\ln`` is the natural one."""
    base = values[1] if len(values) > 1 else numeric.ctx.mpf(10)
    return numeric._quotient(numeric._logarithm(values[0]), numeric._logarithm(base))


_FUNCTIONS: dict[str, Callable[[Numeric, list[Value]], Value]] = {
    "neg": lambda numeric, values: -values[0],
    "inv": lambda numeric, values: numeric._quotient(numeric.ctx.mpf(1), values[0]),
    "°": lambda numeric, values: values[0],
    "%": lambda numeric, values: values[0] / 100,
    "abs": lambda numeric, values: abs(values[0]),
    "ln": lambda numeric, values: numeric._logarithm(values[0]),
    "log": _logarithm,
    "exp": lambda numeric, values: numeric._exponential(numeric.ctx.exp, values[0]),
    "!": lambda numeric, values: numeric._gamma(values[0] + 1),
    "binom": lambda numeric, values: numeric._binomial(values),
    "floor": lambda numeric, values: numeric._whole(values[0], numeric.ctx.floor),
    "ceil": lambda numeric, values: numeric._whole(values[0], numeric.ctx.ceil),
    "max": lambda numeric, values: numeric._extreme(values, max),
    "min": lambda numeric, values: numeric._extreme(values, min),
    "arcsin": lambda numeric, values: numeric._inverse_sine("arcsin", values[0]),
    "arccos": lambda numeric, values: numeric._inverse_sine("arccos", values[0]),
    "arctan": lambda numeric, values: numeric.ctx.atan(numeric._checked(values[0])),
    "sinh": lambda numeric, values: numeric._exponential(numeric.ctx.sinh, values[0]),
    "cosh": lambda numeric, values: numeric._exponential(numeric.ctx.cosh, values[0]),
    "tanh": lambda numeric, values: numeric._hyperbolic_tangent(values[0]),
}


def numeric_key(node: Node, real: bool) -> str:
    """The key of a closed expression from its value, once two precisions agree on it.

    Raises what `Numeric` raises, and `NotExact` if no two precisions agree."""
    values: list[Value] = []
    for digits in PRECISIONS:
        values.append(_numeric(digits, real).value(node))
        if len(values) > 1 and _agree(*values[-2:]):
            return complex_key(*(approximate_key(*_scaled(part)) for part in _parts(values[-1])))
    raise NotExact


@cache
def _numeric(digits: int, real: bool) -> Numeric:
    return Numeric(digits, real=real)


def _parts(value: Value) -> tuple[Value, Value]:
    return value.real, value.imag


def _agree(left: Value, right: Value) -> bool:
    pairs = zip(_parts(left), _parts(right), strict=True)
    return all(abs(a - b) <= abs(b) * mpmath.mpf(10) ** -_AGREE for a, b in pairs)


def _scaled(part: Value) -> tuple[int, int]:
    mantissa, exponent = part.man_exp
    return (-int(mantissa) if part < 0 else int(mantissa)), int(exponent)
