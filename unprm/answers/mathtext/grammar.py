"""Tokens to a tree: recursive descent over the LaTeX that people and models write as answers.

A spelling with two readings (``\\ln 2/3``, ``x2``, ``a/bc``, ``2^{n}!``) is `Unreadable`, and so is compared as text: a
wrong reading could make different answers equal.
"""

from collections.abc import Callable, Sequence
from fractions import Fraction

from unprm.answers.mathtext.tokens import RELATIONS, is_letters, is_number, is_text, is_unit_token, tokenise
from unprm.answers.mathtext.tree import (
    ONE,
    TWO,
    Call,
    Group,
    Node,
    Number,
    Relation,
    Symbol,
    Text,
    Unreadable,
    is_label,
    joined,
    negative,
    quotient,
    structure,
    symbols,
)
from unprm.answers.mathtext.words import FUNCTION_NAMES, MULTIPLIERS, changes_meaning, is_word, words_of
from unprm.answers.tables import pattern, table, words

MAX_TOKENS = 2000
MAX_DEPTH = 40
MAX_DIGITS = 1000  # of one number

_ALIASES: dict[str, str] = table("latex")["functions_also"]
_INVERSES: dict[str, str] = table("latex")["inverses"]
_SYMBOLS, _MATRICES = words("symbols", "latex"), words("matrices", "latex")
_ACCENTS, _POINTED = words("accents", "latex"), words("pointed", "latex")
_BRACKETS = {"(": ")", "[": "]", "\\{": "\\}"}
_SIGNS = {"+": "", "-": "neg", "\\pm": "pm", "\\mp": "mp"}
_SET_OPERATORS = ("\\cup", "\\cap", "\\setminus")
_POSTFIX = ("!", "°", "%")
_STOP = words("between_factors", "latex") | {""}  # what no factor starts with


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


class _Parser:
    """A cursor over tokens. Each method reads one level of the grammar, the loosest first."""

    def __init__(self, tokens: list[str]) -> None:
        self.tokens = tokens
        self.at = 0
        self.depth = 0
        self.bars = 0  # how many |…| are open

    def peek(self) -> str:
        """The current token; empty at the end."""
        return self.tokens[self.at] if self.at < len(self.tokens) else ""

    def take(self) -> str:
        token = self.peek()
        self.at += 1
        return token

    def accept(self, token: str) -> bool:
        """Takes the current token if it is `token`; returns whether it was."""
        accepted = self.peek() == token
        self.at += accepted
        return accepted

    def expect(self, token: str) -> None:
        if not self.accept(token):
            raise Unreadable(f"{self.peek()!r} where {token!r} was expected")

    def inside(self, read: Callable[[], Node]) -> Node:
        """What `read` reads inside brackets, where | opens an absolute value again."""
        bars, self.bars = self.bars, 0
        node = read()
        self.bars = bars
        return node

    def separated(self, read: Callable[[], Node], *separators: str) -> tuple[list[Node], list[str]]:
        """What `read` reads, again after each separator; and the separators."""
        items, between = [read()], list[str]()
        while self.peek() in separators:
            between.append(self.take())
            items.append(read())
        return items, between

    def sequence(self) -> Node:
        """Lists between semicolons."""
        parts, _ = self.separated(self.comma_list, ";")
        return parts[0] if len(parts) == 1 else Group("", tuple(parts), "")

    def comma_list(self) -> Node:
        """Items between commas; "or" between inequalities makes a union."""
        items, separators = self.separated(self.relation, ",", "\\lor", "\\land")
        if len(items) == 1:
            return items[0]
        related = [item for item in items if isinstance(item, Relation)]
        if set(separators) == {"\\lor"}:
            if len(related) == len(items) and all(item.operators != ("=",) for item in related):
                return Call("cup", tuple(items))
            if all(map(is_label, items)) or len({item.args[0] for item in related}) > 1:  # A or B is not A and B
                return Call("or", tuple(items))
        if "\\land" in separators and len(related) < len(items):
            return Call("and", tuple(items))
        return Group("", tuple(items), "")

    def relation(self) -> Node:
        """Sets or values with relations between them; a range or date as it is written."""
        start = self.at
        sides, operators = self.separated(self.set_expression, *RELATIONS)
        if operators:
            return Relation(tuple(operators), tuple(sides))
        return (_as_written(self.tokens[start : self.at]) if self.depth == 0 else None) or sides[0]

    def set_expression(self) -> Node:
        """Values or sets with unions, intersections and differences."""
        (left, *others), operators = self.separated(self.ratio, *_SET_OPERATORS)
        for operator, right in zip(operators, others, strict=True):
            head = operator[1:]
            if isinstance(left, Call) and left.head == head == "cup":
                left = Call("cup", (*left.args, right))
            else:
                left = Call(head, (left, right))
        return left

    def ratio(self) -> Node:
        return joined(":", self.separated(self.quantity, ":")[0])

    def quantity(self) -> Node:
        """A sum with its unit, if it has one; ``1 hour 30 minutes`` has several."""
        parts = [self.sum()]
        while is_unit_token(self.peek()):
            parts[-1] = Call("unit", (parts[-1], Text(self.take()[6:-1])))
            if is_number(self.peek()):
                parts.append(self.sum())
        return joined("compound", parts)

    def sum(self) -> Node:
        """Terms with their signs."""
        terms: list[Node] = []
        while not terms or self.peek() in _SIGNS:
            sign = self.take() if self.peek() in _SIGNS else "+"
            while self.peek() in ("+", "-"):
                if sign not in "+-":
                    raise Unreadable("a sign after ±")
                sign = "+" if sign == self.take() else "-"
            term = self.product()
            terms.append(Call(_SIGNS[sign], (term,)) if _SIGNS[sign] else term)
        return joined("+", terms)

    def product(self) -> Node:
        """Factors. A divisor in a line ends at the next factor without a sign; such a factor is read only if two
        numbers are divided, as in ``1/2x``."""
        factors = self.factors(self.power(), argument=False)
        while self.peek() in ("*", "/", "\\cross"):
            operator = self.take()
            more = self.factors(self.signed_power(), argument=False)
            if operator == "/":
                two_numbers = len(factors) == 1 and isinstance(factors[0], Number) and isinstance(more[0], Number)
                if len(more) > 1 and not two_numbers:
                    raise Unreadable("a factor after a quotient")
                more[0] = Call("inv", (more[0],))
            if operator == "\\cross":
                factors, more = [Call("cross", (joined("*", factors), joined("*", more)))], []
            factors += more
        return joined("*", factors)

    def factors(self, first: Node, *, argument: bool) -> list[Node]:
        """The first factor, and those that follow without a sign; `argument`: they are in a function's argument,
        which ends at the next function or bracket, as \\sin x\\cos x is a product."""
        factors = [first]
        while self.starts_factor(token := self.peek()):
            if argument and (token.removeprefix("\\") in FUNCTION_NAMES or token in ("(", "[", "|")):
                break
            if is_number(token) and not self.stands_alone(factors[-1]):
                raise Unreadable("a number after a factor")
            if isinstance(factors[-1], Number) and (scale := _scale(token)):
                self.at += 1
                factors.append(Number(Fraction(scale)))
                continue
            match factors[-1], self.power():
                case Number(whole), Call("*", (Number(over), Call("inv", (Number(under),)))) if token == "\\frac":
                    if whole.denominator != 1 or not 0 < over < under:
                        raise Unreadable("an improper mixed number")
                    factors[-1] = Number(whole + over / under)
                case _, factor:
                    factors.append(factor)
        return factors

    def starts_factor(self, token: str) -> bool:
        if token == "|":
            return self.bars == 0
        return token not in _STOP and not token.startswith(("\\end{", "\\unit{"))

    def stands_alone(self, last: Node) -> bool:
        """Whether the current number can't be an index or exponent of the factor before it, nor continue its digits:
        ``2^{6} 3^{5}``, ``(n-2)2^{n}``."""
        if not isinstance(last, Call) or last.head == "neg":
            return False
        return last.head in ("^", "!") or self.tokens[self.at + 1 : self.at + 2] == ["^"]

    def signed_power(self) -> Node:
        if self.accept("-"):
            return negative(self.power())
        self.accept("+")
        return self.power()

    def power(self) -> Node:
        """An atom with its postfix signs and its exponent."""
        base = self.postfixed(self.atom())
        if not self.accept("^"):
            return base
        exponent = self.argument()
        if self.peek() == "!":
            raise Unreadable("the factorial of a power, or of its exponent")
        return Call("^", (base, exponent))

    def postfixed(self, node: Node) -> Node:
        while self.peek() in _POSTFIX:
            if isinstance(node, Call) and node.head == "!":
                raise Unreadable("a double factorial")
            node = Call(self.take(), (node,))
        return node

    def argument(self) -> Node:
        """The argument of a command or of ^: a group, or one token."""
        return self.signed_power() if self.peek() in ("+", "-") else self.atom()

    def atom(self) -> Node:
        """A number, a name, words, a bracket, or a command with its arguments, no deeper than `MAX_DEPTH`."""
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise Unreadable("nested too deep")
        token = self.take()
        if is_number(token):
            node = _literal(token)
        elif is_letters(token):
            node = self.letters(token)
        elif is_text(token):
            node = Text(token[6:-1])
        elif token in _BRACKETS:
            node = self.bracket(token)
        elif token == "{":
            node = self.braces()
        elif token == "|":
            node = self.absolute()
        elif token.startswith("\\"):
            node = self.command(token[1:])
        else:
            raise Unreadable(token)
        self.depth -= 1
        return node

    def letters(self, run: str) -> Node:
        """A function, a word, or a product of variables, of which only the first is taken."""
        if run in FUNCTION_NAMES or run == "sqrt":
            return self.command(run)
        if run in ("pi", "infty", "infinity", "inf"):
            return Symbol("\\pi" if run == "pi" else "\\infty")
        function = next((name for name in ("sin", "cos", "tan", "log", "ln") if run.startswith(name)), "")
        if function and len(run) <= len(function) + 2:
            self.put_back(run[len(function) :])
            return self.command(function)
        if len(run) > 1 and (run.isupper() or is_word(run)):
            return Text(run)
        if len(run) > 1:
            self.put_back(run[1:])
        return self.variable(run[0])

    def put_back(self, rest: str) -> None:
        """What is left of the token that was just taken."""
        self.at -= 1
        self.tokens[self.at] = rest

    def variable(self, name: str) -> Node:
        """A name with its index, primes, and argument if it is a function's."""
        if self.accept("_"):
            name += f"_{structure(self.argument())}"
        while self.accept("'"):
            name += "'"
        if name[0] in "fgh" and self.peek() == "(":
            name += f"({structure(self.atom())})"
        return Symbol(name)

    def bracket(self, opening: str) -> Node:
        if opening == "\\{" and self.accept("\\}"):
            return Group("\\{", (), "\\}")
        inner = self.inside(self.sequence)
        closing = self.take()
        if closing not in _BRACKETS.values():
            raise Unreadable("an open bracket")
        match inner:
            case Group("", items, _):
                return Group(opening, items, closing)
            case Call("matrix", _):
                return inner
            case Number() if (opening, closing) == ("[", "]"):
                return inner
        return inner if (opening, closing) == ("(", ")") else Group(opening, (inner,), closing)

    def braces(self) -> Node:
        inner = self.inside(self.sequence)
        if self.accept("\\choose"):
            inner = Call("binom", (inner, self.inside(self.sequence)))
        self.expect("}")
        return inner

    def absolute(self) -> Node:
        self.bars += 1
        inner = self.sum()
        self.expect("|")
        self.bars -= 1
        return Call("abs", (inner,))

    def command(self, name: str) -> Node:
        """The arguments of a command whose token was just taken."""
        if name in FUNCTION_NAMES:
            return self.function(_ALIASES.get(name, name))
        match name:
            case "frac":
                return quotient(self.argument(), self.argument())
            case "sqrt":
                return self.root()
            case "binom":
                return Call("binom", (self.argument(), self.argument()))
            case "sum":
                return self.indexed_sum()
            case "emptyset":
                return Group("\\{", (), "\\}")
        command = "\\" + name
        if name in _SYMBOLS:
            return self.variable(command)
        if command in _ACCENTS:
            accented = structure(self.argument()).removeprefix("\\").removesuffix("math")
            if command in _POINTED and accented in ("i", "j", "k"):
                return Symbol(f"\\hat{accented}")
            return Symbol(f"{command}({accented})")
        if name.startswith("mathbb"):
            return Symbol(command)
        if name.startswith("begin{"):
            return self.matrix(name[name.index("{") + 1 : -1].strip())
        raise Unreadable(command)

    def root(self) -> Node:
        degree: Node = TWO
        if self.accept("["):
            degree = self.sum()
            self.expect("]")
        return Call("root", (self.argument(), degree))

    def indexed_sum(self) -> Node:
        """\\sum_{k=1}^{n} body, with its body up to the next + or -."""
        self.expect("_")
        below = self.argument()
        self.expect("^")
        match below:
            case Relation(("=",), (Symbol() as index, first)):
                return Call("sum", (index, first, self.argument(), self.product()))
        raise Unreadable("a sum without an index")

    def function(self, name: str) -> Node:
        """A function with its base and exponent, and its argument."""
        around: dict[str, Node] = {}
        while self.peek() in ("^", "_"):
            sign = self.take()
            around[sign] = self.argument()
        if around.get("^") == negative(ONE):
            if name not in _INVERSES:
                raise Unreadable("an inverse")
            name = _INVERSES[name]
            del around["^"]
        if "_" in around and name != "log":
            raise Unreadable("a subscript of a function")
        argument = self.function_argument()
        node = Call(name, (argument, around["_"]) if "_" in around else (argument,))
        return Call("^", (node, around["^"])) if "^" in around else self.postfixed(node)

    def function_argument(self) -> Node:
        if self.peek() in ("(", "{", "["):
            return self.atom()
        argument = joined("*", self.factors(self.signed_power(), argument=True))
        if self.peek() == "/" and not symbols(argument):  # \\sin x/\\cos x divides outside, \\ln 2/3 is not read at all
            raise Unreadable("a quotient after a function")
        return argument

    def matrix(self, environment: str) -> Node:
        if environment not in _MATRICES:
            raise Unreadable(environment)
        if environment == "array":  # {cc}, the alignment of its columns
            self.expect("{")
            while self.take() not in ("}", ""):
                pass
        rows: list[Node] = []
        while not self.peek().startswith("\\end{"):
            rows.append(Call("row", tuple(self.separated(self.sum, "&")[0])))
            if not self.accept("\\\\"):
                break
        if not self.take().startswith("\\end{"):
            raise Unreadable("an open matrix")
        return Call("matrix", tuple(rows))


def _literal(token: str) -> Node:
    """A number; of a decimal also how many significant digits it was written with."""
    if len(token) > MAX_DIGITS:
        raise Unreadable("a number too long to compute with")
    if repeating := pattern("repeating_decimal").fullmatch(token):
        whole, fixed, period = repeating.groups()
        repeated = Fraction(int(period), 10 ** len(period) - 1)
        return Number((int((whole + fixed) or "0") + repeated) / 10 ** len(fixed))
    value, (mantissa, *_) = Fraction(token), token.lower().split("e")
    return Number(value, len(mantissa.replace(".", "").lstrip("0")) if value.denominator > 1 else 0)


def _scale(token: str) -> int:
    """What a word such as "million" after a number multiplies it by; 0 for others."""
    word, *others = words_of(token.removeprefix("\\text")) or [""]
    return 0 if changes_meaning(others) else MULTIPLIERS.get(word.removesuffix("s"), 0)


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
