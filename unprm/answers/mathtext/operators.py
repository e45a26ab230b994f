"""What stands between the atoms of an expression: commas, relations, signs, powers.

A spelling with two readings (``\\ln 2/3``, ``x2``, ``a/bc``, ``2^{n}!``) is `Unreadable`, and so is compared as
text: a wrong reading could make different answers equal.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

from unprm.answers.mathtext.tokens import RELATIONS, is_number, is_unit_token
from unprm.answers.mathtext.tree import Call, Group, Node, Number, Relation, Text, Unreadable, is_label
from unprm.answers.mathtext.words import FUNCTION_NAMES

BRACKETS = {"(": ")", "[": "]", "\\{": "\\}"}
_STOP = frozenset([
    "", ",", ";", "&", "\\\\", "}", "+", "-", "\\pm", "\\mp", "*", "/", ":", "^", "_", "!", "'", "%", "°",
    "\\cup", "\\cap", "\\setminus", "\\lor", "\\choose", "\\mod", *RELATIONS, *BRACKETS.values(),
])  # fmt: skip
_SIGN_HEADS = {"-": "neg", "\\pm": "pm", "\\mp": "mp"}


class Operators(ABC):
    """A cursor over tokens that reads whatever has operators. Raises `Unreadable` for what isn't in the grammar."""

    def __init__(self, tokens: list[str]) -> None:
        self.tokens = tokens
        self.at = 0
        self.depth = 0
        self.bars = 0  # how many |…| are open

    @abstractmethod
    def primary(self) -> Node:
        """Reads one atom."""

    @abstractmethod
    def argument(self) -> Node:
        """Reads the argument of a command or of ^: a group, or one token."""

    def peek(self) -> str:
        """The current token; empty at the end."""
        return self.tokens[self.at] if self.at < len(self.tokens) else ""

    def take(self) -> str:
        """Returns the current token and moves to the next."""
        token = self.peek()
        self.at += 1
        return token

    def accept(self, token: str) -> bool:
        """Takes the current token if it is `token`; returns whether it was."""
        if self.peek() == token:
            self.at += 1
            return True
        return False

    def expect(self, token: str) -> None:
        """Takes the current token. Raises `Unreadable` if it is not `token`."""
        if not self.accept(token):
            raise Unreadable(f"{self.peek()!r} where {token!r} was expected")

    def inside(self, read: Callable[[], Node]) -> Node:
        """What `read` reads inside brackets, where | opens an absolute value again."""
        bars, self.bars = self.bars, 0
        node = read()
        self.bars = bars
        return node

    def sequence(self) -> Node:
        """Items between commas; semicolons bind weaker."""
        parts = [self.comma_list()]
        while self.accept(";"):
            parts.append(self.comma_list())
        return parts[0] if len(parts) == 1 else Group("", tuple(parts), "")

    def comma_list(self) -> Node:
        """Items between commas; "or" between inequalities makes a union."""
        items, separators = [self.relation()], set()
        while self.peek() in (",", "\\lor"):
            separators.add(self.take())
            items.append(self.relation())
        if len(items) == 1:
            return items[0]
        if separators == {"\\lor"} and all(isinstance(i, Relation) and i.operators != ("=",) for i in items):
            return Call("cup", tuple(items))
        if separators == {"\\lor"} and all(map(is_label, items)):  # A or B is not A and B
            return Call("or", tuple(items))
        return Group("", tuple(items), "")

    def relation(self) -> Node:
        """Sets or values with relations between them; a range or date as it is written."""
        start = self.at
        sides = [self.set_expression()]
        operators: list[str] = []
        while self.peek() in RELATIONS:
            operators.append(self.take())
            sides.append(self.set_expression())
        if operators:
            return Relation(tuple(operators), tuple(sides))
        return (_as_written(self.tokens[start : self.at]) if self.depth == 0 else None) or sides[0]

    def set_expression(self) -> Node:
        """Values or sets with unions, intersections and differences."""
        left = self.ratio()
        while self.peek() in ("\\cup", "\\cap", "\\setminus"):
            head = self.take()[1:]
            right = self.ratio()
            if isinstance(left, Call) and left.head == head == "cup":
                left = Call("cup", (*left.args, right))
            else:
                left = Call(head, (left, right))
        return left

    def ratio(self) -> Node:
        """Quantities with colons between them."""
        terms = [self.quantity()]
        while self.accept(":"):
            terms.append(self.quantity())
        return Call(":", tuple(terms)) if len(terms) > 1 else terms[0]

    def quantity(self) -> Node:
        """A sum with its unit, if it has one; ``1 hour 30 minutes`` has several."""
        parts = [self.sum()]
        while is_unit_token(self.peek()):
            parts[-1] = Call("unit", (parts[-1], Text(self.take()[6:-1])))
            if is_number(self.peek()):
                parts.append(self.sum())
        return Call("compound", tuple(parts)) if len(parts) > 1 else parts[0]

    def sum(self) -> Node:
        """Terms with + and - between them."""
        terms = [self.signed(self.take() if self.peek() in ("+", "-", "\\pm", "\\mp") else "+")]
        while self.peek() in ("+", "-", "\\pm", "\\mp"):
            terms.append(self.signed(self.take()))
        return Call("+", tuple(terms)) if len(terms) > 1 else terms[0]

    def signed(self, sign: str) -> Node:
        """A product with the sign that was read before it, and any that follow."""
        while self.peek() in ("+", "-"):
            if sign not in "+-":
                raise Unreadable("a sign after ±")
            sign = "+" if sign == self.take() else "-"
        term = self.product()
        return Call(_SIGN_HEADS[sign], (term,)) if sign != "+" else term

    def product(self) -> Node:
        """Factors. A divisor in a line ends at the next factor without a sign; such a factor is read only if two
        numbers are divided, as in ``1/2x``."""
        factors = self.factors(self.power(), argument=False)
        while self.peek() in ("*", "/"):
            inverse = self.take() == "/"
            more = self.factors(self.signed_power(), argument=False)
            if inverse:
                two_numbers = len(factors) == 1 and isinstance(factors[0], Number) and isinstance(more[0], Number)
                if len(more) > 1 and not two_numbers:
                    raise Unreadable("a factor after a quotient")
                more[0] = Call("inv", (more[0],))
            factors += more
        return Call("*", tuple(factors)) if len(factors) > 1 else factors[0]

    def factors(self, first: Node, *, argument: bool) -> list[Node]:
        """The first factor, and those that follow without a sign; `argument`: they are in a function's argument,
        which ends at the next function or bracket, as \\sin x\\cos x is a product."""
        factors = [first]
        while self._starts_factor(token := self.peek()):
            if argument and (token.removeprefix("\\") in FUNCTION_NAMES or token in ("(", "[", "|")):
                break
            self._append_adjacent(factors, token)
        return factors

    def _starts_factor(self, token: str) -> bool:
        if token == "|":
            return self.bars == 0
        return token not in _STOP and not token.startswith(("\\end{", "\\unit{"))

    def _append_adjacent(self, factors: list[Node], token: str) -> None:
        """A factor without a sign before it. A number is accepted only where it is unambiguous (``2^{6} 3^{5}``,
        ``(n-2)2^{n}``); an integer before a proper fraction of integers is a mixed number."""
        last = factors[-1]
        if is_number(token) and not self._stands_alone(last):
            raise Unreadable("a number after a factor")
        factor = self.power()
        match last, factor:
            case Number(whole), Call("*", (Number(over), Call("inv", (Number(under),)))) if token == "\\frac":
                if whole.denominator != 1 or not 0 < over < under:
                    raise Unreadable("an improper mixed number")
                factors[-1] = Number(whole + over / under)
            case _:
                factors.append(factor)

    def _stands_alone(self, last: Node) -> bool:
        """Whether the current number can't be an index or exponent of the factor before it, nor continue its
        digits."""
        if not isinstance(last, Call) or last.head == "neg":
            return False
        return last.head in ("^", "!") or self.tokens[self.at + 1 : self.at + 2] == ["^"]

    def signed_power(self) -> Node:
        """A power that may have a sign."""
        if self.peek() in ("-", "+"):
            return Call("neg", (self.power(),)) if self.take() == "-" else self.power()
        return self.power()

    def power(self) -> Node:
        """An atom with its postfix signs and its exponent."""
        base = self.postfixed(self.primary())
        if not self.accept("^"):
            return base
        exponent = self.argument()
        if self.peek() == "!":
            raise Unreadable("the factorial of a power, or of its exponent")
        return Call("^", (base, exponent))

    def postfixed(self, node: Node) -> Node:
        """An atom with the postfix signs that follow it."""
        while self.peek() in ("!", "°", "%"):
            if isinstance(node, Call) and node.head == "!":
                raise Unreadable("a double factorial")
            node = Call(self.take(), (node,))
        return node


def _as_written(tokens: Sequence[str]) -> Node | None:
    """A range, a score, a date, a telephone number or a path, with its unit, which would read as a subtraction or a
    quotient: ``10-12 cm``, ``2020-03-04``, ``3/4/2020``, ``A-C-B``. None for anything else."""
    items = [token for token in tokens if not is_unit_token(token) and token != "%"]
    units = [Text(token[6:-1] or "percent") for token in tokens if token not in items]
    values, signs = items[::2], set(items[1::2])
    if len(items) % 2 == 0 or not (signs == {"-"} or (signs == {"/"} and len(values) > 2)):
        return None
    is_path = len(values) > 2 and all(len(item) == 1 and item.isupper() for item in values)
    if not (is_path or all(map(is_number, values))):
        return None
    written = Text("".join(items))
    return Call("unit", (written, units[0])) if units else written
