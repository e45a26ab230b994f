"""Evaluates expressions: exactly where the result is rational, else as balls. Computes the keys of their values: short
strings that are the same for the same number, however it was computed.

A number is a rational where that is exact, else a ball of Arb (https://flintlib.org) that surely holds it: midpoints
and radii of its real and imaginary part, which bound every rounding error. The key of a rational is exact. The key of
an irrational real is the first `DIGITS` digits of its product with an odd constant: the product keeps numbers that
people write (halves of a unit in the last place, for example) away from the edges of rounding.
"""

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from math import comb, factorial, prod
from operator import add, mul

from flint import acb, arb, ctx, fmpq, fmpz

from unprm.answers.mathtext.tree import ONE, Call, Node, Number, Symbol, Unreadable, mapped, quotient

Value = Fraction | acb

ctx.prec = 600  # bits of a ball, for all threads
DIGITS = 90  # of the key of an irrational number
_KNOWN_BITS = 340  # of the number, for its key
_TINY = arb(10) ** -100  # a narrower ball that holds an integer is that integer
_ABSORBED = arb(10) ** -85  # a term smaller than this share of another would not affect the key of their sum
_FAR = arb(10) ** 40  # beyond it, or nearer to 0 than its inverse, arguments of functions lose too many digits
_SCRAMBLE = 1_234_567_891_011_121_314_151_617_181_921  # over 10**30
_MAX_EXPONENT_BITS = 200_000
_MAX_DENOMINATOR = 10**20  # of a rational that is recognised in a ball
_MAX_DEGREE = 10**6  # of a root; higher ones are too near to 1
_MAX_BITS = 4096  # of a rational
_DEGREE = quotient(Symbol("\\pi"), Number(Fraction(180)))


class Undefined(Exception):
    """The expression has no value: a division by zero, or no real value where it has unknowns."""


class Undecided(Exception):
    """No key can be computed within the limits, or surely enough: the expression is compared by its structure."""


def ball(value: Value) -> acb:
    return acb(fmpq(value.numerator, value.denominator)) if isinstance(value, Fraction) else value


def settled(found: acb) -> Value:
    """The value in a ball: parts that are integers, up to `_TINY`, are these integers. Raises `Undecided` if it isn't
    finite."""
    if not found.is_finite():
        raise Undecided
    tolerance = _TINY * max(arb(1), abs(found).mid())
    real, imaginary = _whole(found.real, tolerance), _whole(found.imag, tolerance)
    if imaginary.is_zero() and (whole := real.unique_fmpz()) is not None and real.is_exact():
        return Fraction(int(whole))
    return acb(real, imaginary)


def _whole(part: arb, tolerance: arb) -> arb:
    whole = part.unique_fmpz()
    return arb(whole) if whole is not None and part.rad() <= tolerance else part


def added(balls: list[acb]) -> Value:
    """The sum. Raises `Undecided` if a term would vanish beside another."""
    return settled(acb(_total([term.real for term in balls]), _total([term.imag for term in balls])))


def _total(parts: list[arb]) -> arb:
    """The sum of real numbers; what cancels, up to `_TINY`, is 0."""
    sizes = sorted(abs(part.mid()) for part in parts if not part.is_zero())
    if not sizes:
        return arb(0)
    if sizes[0] < sizes[-1] * _ABSORBED:
        raise Undecided
    total = sum(parts, start=arb(0))
    if not total.contains(0):
        return total
    if total.rad() > sizes[-1] * _TINY:
        raise Undecided
    return arb(0)


def inverted(value: Value) -> Value:
    """One over the value. Raises `Undefined` and `Undecided`."""
    if value == 0:
        raise Undefined
    if isinstance(value, Fraction):
        return 1 / value
    if value.contains(0):
        raise Undecided
    return settled(1 / value)


def argument(value: Value) -> acb:
    """A value at which functions don't lose digits. Raises `Undecided`."""
    found = ball(value)
    if not (found.is_zero() or 1 / _FAR < abs(found) < _FAR):
        raise Undecided
    return found


def is_negative(value: Value) -> bool:
    """Whether it is surely a negative real number."""
    return value < 0 if isinstance(value, Fraction) else value.imag.is_zero() and bool(value.real < 0)


def height(value: Fraction) -> int:
    """The bits of the numerator or denominator, whichever has more."""
    return max(value.numerator.bit_length(), value.denominator.bit_length())


def number_key(value: Value) -> str:
    """The key of a number. Raises `Undecided` if its ball is too wide, or it is far too large or small."""
    if isinstance(value, Fraction):
        return _rational_key(value)
    real, imaginary = _real_key(value.real), _real_key(value.imag)
    return real if imaginary == "0" else f"{real}|{imaginary}i"


def _rational_key(value: Fraction) -> str:
    """The rational in lowest terms, or its digest if it is long."""
    if height(value) <= 320:
        return f"{value.numerator}/{value.denominator}" if value.denominator > 1 else str(value.numerator)
    return "#" + digest(f"{value.numerator:x}/{value.denominator:x}")


def digest(text: str) -> str:
    """A fixed-length stand-in for a long text."""
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def _real_key(part: arb) -> str:
    """The key of a real number: of the simple rational in its ball, if there is one."""
    if part.is_zero():
        return "0"
    if part.rel_accuracy_bits() < _KNOWN_BITS:
        raise Undecided
    mantissa, exponent = map(int, part.mid().man_exp())
    if abs(exponent) + mantissa.bit_length() > _MAX_EXPONENT_BITS:
        raise Undecided
    value = Fraction(mantissa) * Fraction(2) ** exponent
    simple = value.limit_denominator(_MAX_DENOMINATOR)
    if abs(simple.numerator) < _MAX_DENOMINATOR**2 and part.contains(fmpq(simple.numerator, simple.denominator)):
        return _rational_key(simple)
    return _digits(value)


def _digits(value: Fraction) -> str:
    """The first `DIGITS` digits of the scrambled number, with its sign and exponent."""
    sign, numerator, denominator = "-" if value < 0 else "", abs(value.numerator) * _SCRAMBLE, value.denominator
    magnitude = (numerator.bit_length() - denominator.bit_length()) * 30103 // 100000
    shift = DIGITS - magnitude + 31
    scaled = numerator * 10**shift // denominator if shift >= 0 else numerator // (denominator * 10**-shift)
    digits = str(scaled)
    return f"~{sign}{digits[:DIGITS]}e{len(digits) - shift}"


@dataclass(slots=True)
class Evaluator:
    """Evaluates trees, `left` of whose nodes it may still compute: so hostile answers cost little. `real` makes roots
    and logarithms of negatives undefined; `point` has the values of unknowns.

    Raises `Undefined`, `Undecided` (also beyond its limits), and `Unreadable` for what isn't a number."""

    left: int
    real: bool = False
    point: Mapping[str, Number] = field(default_factory=dict)

    def value(self, node: Node) -> Value:
        if not self.left:
            raise Undecided
        self.left -= 1
        match node:
            case Number(value, _):
                return value
            case Symbol(name) if name in self.point:
                return self.point[name].value
            case Symbol(name) if name in _CONSTANTS:
                return _CONSTANTS[name]()
            case Call(head, args):
                values = [self.value(_in_radians(arg) if head in _TRIGONOMETRIC else arg) for arg in args]
                return self._call(head, *values)
        raise Unreadable("not a number")

    def _call(self, head: str, *values: Value) -> Value:
        match head:
            case "+":
                rational, balls = _combined(values, add, Fraction(0))
                return added([*balls, ball(rational)]) if balls else rational
            case "*":
                return _product(*values)
            case "^":
                return self._power(*values)
            case "root":
                return self._power(values[0], inverted(values[1]))
            case "log":  # of base 10 if none is given, as in school
                value, base = (*values, Fraction(10))[:2]
                return _product(self._call("ln", value), inverted(self._call("ln", base)))
        if head in _PLAIN:
            return _PLAIN[head](*values)
        value = values[0]
        if head not in _FUNCTIONS:
            raise Unreadable(head)
        negative, steep = self.real and is_negative(value), self.real and abs(ball(value)) > 1
        if (head == "ln" and (value == 0 or negative)) or (head in ("arcsin", "arccos") and steep):
            raise Undefined
        return settled(_FUNCTIONS[head](ball(value) if head == "ln" else argument(value)))

    def _power(self, base: Value, exponent: Value) -> Value:
        """The power; with an exponent of odd denominator the real one of a negative base."""
        if base == 0:
            if not ball(exponent).real > 0:
                raise Undefined
            return base
        if not isinstance(exponent, Fraction):
            if self.real and is_negative(base):
                raise Undefined
            return settled(argument(exponent * ball(base).log()).exp())
        root, power = self._root(base, exponent.denominator), exponent.numerator
        if not isinstance(root, Fraction):
            return settled(root ** fmpz(power))
        if abs(root) == 1:
            return root ** (power % 2)
        if (height(root) - 1) * abs(power) > _MAX_BITS:
            raise Undecided
        return root**power

    def _root(self, base: Value, degree: int) -> Value:
        """The real root if there is one (also of negatives, for an odd degree), else the principal one."""
        if degree == 1:
            return base
        if degree > _MAX_DEGREE:
            raise Undecided
        if is_negative(base):
            if degree % 2:
                return -self._root(-base, degree)
            if self.real:
                raise Undefined
        elif isinstance(base, Fraction):
            root = Fraction(*(int(fmpz(part).root(degree)) for part in base.as_integer_ratio()))
            if root**degree == base:
                return root
        return settled(ball(base).root(degree))


def _in_radians(node: Node) -> Node:
    if isinstance(node, Call) and node.head == "°":
        return Call("*", (node.args[0], _DEGREE))
    return mapped(node, _in_radians)


def _combined(
    values: Iterable[Value], combine: Callable[[Fraction, Fraction], Fraction], rational: Fraction
) -> tuple[Fraction, list[acb]]:
    balls: list[acb] = []
    for value in values:
        if not isinstance(value, Fraction):
            balls.append(value)
            continue
        rational = combine(rational, value)
        if height(rational) > _MAX_BITS:
            raise Undecided
    return rational, balls


def _product(*values: Value) -> Value:
    rational, balls = _combined(values, mul, ONE.value)
    return settled(prod(balls, start=ball(rational))) if balls and rational else rational


def _factorial(value: Value) -> Value:
    n = _natural(value)
    if n * n.bit_length() > _MAX_BITS:
        raise Undecided
    return Fraction(factorial(n))


def _binomial(over: Value, under: Value) -> Value:
    n, k = _natural(over), _natural(under)
    if min(k, abs(n - k)) * n.bit_length() > _MAX_BITS:
        raise Undecided
    return Fraction(comb(n, k))


def _natural(value: Value) -> int:
    if not isinstance(value, Fraction) or value.denominator > 1 or value < 0:
        raise Unreadable("not a natural number")
    return value.numerator


_CONSTANTS: dict[str, Callable[[], Value]] = {
    "\\pi": acb.pi, "e": lambda: acb(1).exp(), "i": lambda: acb(0, 1),
}  # fmt: skip
_PLAIN: dict[str, Callable[..., Value]] = {
    "neg": lambda value: -value,
    "inv": inverted,
    "°": lambda value: value,
    "%": lambda value: value / 100,
    "abs": lambda value: abs(value) if isinstance(value, Fraction) else acb(abs(value)),
    "!": _factorial,
    "binom": _binomial,
}
_FUNCTIONS: dict[str, Callable[[acb], acb]] = {
    "sin": acb.sin, "cos": acb.cos, "tan": acb.tan, "cot": acb.cot, "sec": acb.sec, "csc": acb.csc,
    "arcsin": acb.asin, "arccos": acb.acos, "arctan": acb.atan, "ln": acb.log, "exp": acb.exp,
}  # fmt: skip
_TRIGONOMETRIC = frozenset(["sin", "cos", "tan", "cot", "sec", "csc"])
