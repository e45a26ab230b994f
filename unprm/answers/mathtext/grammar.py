"""Tokens to a tree: recursive descent over the LaTeX that people and models write as answers.

A spelling with two readings (``\\ln 2/3``, ``x2``, ``a/bc``, ``2^{n}!``) is `Unreadable`, and so is compared as
text: a wrong reading could make different answers equal.
"""

from collections.abc import Sequence

from unprm.answers.mathtext.atoms import BRACKETS
from unprm.answers.mathtext.commands import Commands
from unprm.answers.mathtext.tokens import RELATIONS, is_number, is_unit_token, tokenise
from unprm.answers.mathtext.tree import Call, Group, Node, Number, Relation, Text, Unreadable, is_label
from unprm.answers.mathtext.words import FUNCTION_NAMES

MAX_TOKENS = 2000

_STOP = frozenset([
    "", ",", ";", "&", "\\\\", "}", "+", "-", "\\pm", "\\mp", "*", "/", ":", "^", "_", "!", "'", "%", "°",
    "\\cup", "\\cap", "\\setminus", "\\lor", "\\choose", "\\mod", "\\rfloor", "\\rceil",
    *RELATIONS, *BRACKETS.values(),
])  # fmt: skip
_SIGN_HEADS = {"-": "neg", "\\pm": "pm", "\\mp": "mp"}


def parse(text: str) -> Node:
    """The tree of an answer in canonical spelling. Raises `Unreadable`."""
    tokens = [token for token in tokenise(text) if token != " "]
    if len(tokens) > MAX_TOKENS:
        raise Unreadable("too long")
    parser = _Parser(tokens)
    node = parser.sequence()
    if parser.peek():
        raise Unreadable(parser.peek())
    return node


class _Parser(Commands):
    def sequence(self) -> Node:
        """Items between commas; semicolons bind weaker; "or" between relations makes a union."""
        parts = [self.comma_list()]
        while self.accept(";"):
            parts.append(self.comma_list())
        return parts[0] if len(parts) == 1 else Group("", tuple(parts), "")

    def comma_list(self) -> Node:
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
        start = self.at
        sides = [self.set_expression()]
        operators: list[str] = []
        while self.peek() in RELATIONS:
            operators.append(self.take())
            sides.append(self.set_expression())
        if not operators and self.depth == 0 and (sign := _separator(self.tokens[start : self.at])):
            return _as_written(sides[0], sign)
        return Relation(tuple(operators), tuple(sides)) if operators else sides[0]

    def set_expression(self) -> Node:
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
        while self.peek() in ("+", "-", "\\pm", "\\mp", "\\mod"):
            sign = self.take()
            if sign == "\\mod":
                raise Unreadable("a remainder or a residue class")
            terms.append(self.signed(sign))
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
                if len(more) > 1 and not (_is_number(factors) and isinstance(more[0], Number)):
                    raise Unreadable("a factor after a quotient")
                more[0] = Call("inv", (more[0],))
            factors += more
        return Call("*", tuple(factors)) if len(factors) > 1 else factors[0]

    def factors(self, first: Node, *, argument: bool) -> list[Node]:
        """The first factor, and those that follow without a sign between them."""
        factors = [first]
        while self.starts_factor(self.peek()) and not (argument and self.ends_argument()):
            self.append_adjacent(factors, self.peek())
        return factors

    def ends_argument(self) -> bool:
        """Whether the argument of a function without brackets ends here: \\sin x\\cos x is a product."""
        token = self.peek()
        return token.removeprefix("\\") in FUNCTION_NAMES or token in ("(", "[", "|")

    def append_adjacent(self, factors: list[Node], token: str) -> None:
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

    def starts_factor(self, token: str) -> bool:
        if token == "|":
            return self.bars == 0
        return token not in _STOP and not token.startswith(("\\end{", "\\unit{"))

    def power(self) -> Node:
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


def _separator(tokens: Sequence[str]) -> str:
    """The sign between the numbers of a range, a score, a date or a telephone number, or the letters of a path, which
    would read as a subtraction or a quotient: ``10-12``, ``2020-03-04``, ``3/4/2020``, ``A-C-B``. Empty for anything
    else."""
    items = [token for token in tokens if not is_unit_token(token) and token != "%"]
    signs = set(items[1::2])
    if len(items) % 2 == 0 or not (signs == {"-"} or (signs == {"/"} and items[3:])):
        return ""
    is_path = len(items) > 3 and all(len(item) == 1 and item.isupper() for item in items[::2])
    return signs.pop() if is_path or all(map(is_number, items[::2])) else ""


def _as_written(node: Node, sign: str) -> Node:
    """The numbers in their places, with the unit that follows them."""
    match node:
        case Call("unit", (inner, unit)):
            return Call("unit", (_as_written(inner, sign), unit))
        case Call("+" | "*", args):
            return Call("written" + sign, tuple(arg.args[0] if isinstance(arg, Call) else arg for arg in args))
    return node


def _is_number(factors: list[Node]) -> bool:
    return len(factors) == 1 and isinstance(factors[0], Number)
