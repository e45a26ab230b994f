"""Tokens to a tree: recursive descent over the LaTeX that people and models write as answers.

The atoms are here: numbers, names, brackets, and commands with their arguments; `operators` reads what stands between
them.
"""

from fractions import Fraction

from unprm.answers.mathtext.operators import BRACKETS, Operators
from unprm.answers.mathtext.tokens import is_letters, is_number, is_text, number, significant_digits, tokenise
from unprm.answers.mathtext.tree import (
    Call,
    Group,
    Matrix,
    Node,
    Number,
    Relation,
    Symbol,
    Text,
    Unreadable,
    structure,
    symbols,
)
from unprm.answers.mathtext.words import FUNCTION_NAMES, is_word
from unprm.answers.tables import table, words

MAX_TOKENS = 2000
MAX_DEPTH = 40

_LATEX = table("latex")
_ALIASES: dict[str, str] = _LATEX["functions_also"]
_INVERSES: dict[str, str] = _LATEX["inverses"]
_SYMBOLS, _MATRICES = words("symbols", "latex"), words("matrices", "latex")
_ACCENTS, _POINTED = words("accents", "latex"), words("pointed", "latex")


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


class _Parser(Operators):
    def primary(self) -> Node:
        """Reads one atom, no deeper than `MAX_DEPTH`."""
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise Unreadable("nested too deep")
        node = self._atom(self.take())
        self.depth -= 1
        return node

    def argument(self) -> Node:
        """The argument of a command or of ^: a group, or one token."""
        return self.signed_power() if self.peek() in ("+", "-") else self.primary()

    def _atom(self, token: str) -> Node:
        if is_number(token):
            return _literal(token)
        if is_letters(token):
            return self._letters(token)
        if is_text(token):
            return Text(token[6:-1])
        if token in BRACKETS:
            return self._bracket(token)
        if token == "{":
            return self._braces()
        if token == "|":
            return self._absolute()
        if token.startswith("\\"):
            return self._command(token)
        raise Unreadable(token)

    def _letters(self, run: str) -> Node:
        """A function, a word, or a product of variables, of which only the first is taken."""
        if run in FUNCTION_NAMES or run == "sqrt":
            return self._command("\\" + run)
        if run in ("pi", "infty", "infinity", "inf"):
            return Symbol("\\pi" if run == "pi" else "\\infty")
        prefix = next((name for name in ("sin", "cos", "tan", "log", "ln") if run.startswith(name)), "")
        if prefix and len(run) <= len(prefix) + 2:
            self.at -= 1
            self.tokens[self.at] = run[len(prefix) :]
            return self._command("\\" + prefix)
        if len(run) > 1 and (run.isupper() or is_word(run)):
            return Text(run)
        if len(run) > 1:
            self.at -= 1
            self.tokens[self.at] = run[1:]
        return self._variable(run[0])

    def _variable(self, name: str) -> Node:
        """A name with its index, primes, and argument if it is a function's."""
        if self.accept("_"):
            name += f"_{structure(self.argument())}"
        while self.accept("'"):
            name += "'"
        if name[0] in "fgh" and self.peek() == "(":
            name += f"({structure(self.primary())})"
        return Symbol(name)

    def _bracket(self, opening: str) -> Node:
        if opening == "\\{" and self.accept("\\}"):
            return Group("\\{", (), "\\}")
        inner = self.inside(self.sequence)
        closing = self.take()
        if closing not in BRACKETS.values():
            raise Unreadable("an open bracket")
        if isinstance(inner, Group) and inner.opening == "":
            return Group(opening, inner.items, closing)
        if (opening, closing) == ("(", ")") or isinstance(inner, Matrix):
            return inner
        if (opening, closing) == ("[", "]") and isinstance(inner, Number):
            return inner
        return Group(opening, (inner,), closing)

    def _braces(self) -> Node:
        inner = self.inside(self.sequence)
        if self.accept("\\choose"):
            inner = Call("binom", (inner, self.inside(self.sequence)))
        self.expect("}")
        return inner

    def _absolute(self) -> Node:
        self.bars += 1
        inner = self.sum()
        self.expect("|")
        self.bars -= 1
        return Call("abs", (inner,))

    def _command(self, command: str) -> Node:
        """The arguments of a command whose token was just taken."""
        name = command[1:]
        if name in FUNCTION_NAMES:
            return self._function(_ALIASES.get(name, name))
        match name:
            case "frac":
                return Call("*", (self.argument(), Call("inv", (self.argument(),))))
            case "sqrt":
                return self._root()
            case "binom":
                return Call("binom", (self.argument(), self.argument()))
            case "sum":
                return self._sum()
            case "emptyset":
                return Group("\\{", (), "\\}")
        if name in _SYMBOLS:
            return self._variable(command)
        if command in _ACCENTS:
            accented = structure(self.argument()).removeprefix("\\").removesuffix("math")
            if command in _POINTED and accented in ("i", "j", "k"):
                return Symbol(f"\\hat{accented}")
            return Symbol(f"{command}({accented})")
        if name.startswith("mathbb"):
            return Symbol(command.replace(" ", ""))
        if name.startswith("begin{"):
            return self._matrix(name[name.index("{") + 1 : -1].strip())
        raise Unreadable(command)

    def _root(self) -> Node:
        degree: Node = Number(Fraction(2))
        if self.accept("["):
            degree = self.sum()
            self.expect("]")
        return Call("root", (self.argument(), degree))

    def _sum(self) -> Node:
        """\\sum_{k=1}^{n} body, with its body up to the next + or -."""
        self.expect("_")
        below = self.argument()
        self.expect("^")
        match below:
            case Relation(("=",), (Symbol() as index, first)):
                return Call("sum", (index, first, self.argument(), self.product()))
        raise Unreadable("a sum without an index")

    def _function(self, name: str) -> Node:
        base: Node | None = None
        exponent: Node | None = None
        while self.peek() in ("^", "_"):
            if self.take() == "^":
                exponent = self.argument()
            else:
                base = self.argument()
        if exponent == Call("neg", (Number(Fraction(1)),)):
            if name not in _INVERSES:
                raise Unreadable("an inverse")
            name, exponent = _INVERSES[name], None
        if base is not None and name != "log":
            raise Unreadable("a subscript of a function")
        argument = self._function_argument()
        node = Call(name, (argument,) if base is None else (argument, base))
        return Call("^", (node, exponent)) if exponent is not None else self.postfixed(node)

    def _function_argument(self) -> Node:
        if self.peek() in ("(", "{", "["):
            return self.primary()
        factors = self.factors(self.signed_power(), argument=True)
        argument = Call("*", tuple(factors)) if len(factors) > 1 else factors[0]
        if self.peek() == "/" and not symbols(argument):  # \\sin x/\\cos x divides outside, \\ln 2/3 is not read at all
            raise Unreadable("a quotient after a function")
        return argument

    def _matrix(self, environment: str) -> Node:
        if environment not in _MATRICES:
            raise Unreadable(environment)
        if environment == "array":  # {cc}, the alignment of its columns
            self.expect("{")
            while self.take() not in ("}", ""):
                pass
        rows: list[tuple[Node, ...]] = []
        while not self.peek().startswith("\\end{"):
            cells = [self.sum()]
            while self.accept("&"):
                cells.append(self.sum())
            rows.append(tuple(cells))
            if not self.accept("\\\\"):
                break
        if not self.take().startswith("\\end{"):
            raise Unreadable("an open matrix")
        return Matrix(tuple(rows))


def _literal(token: str) -> Node:
    value = number(token)
    if value is None:
        raise Unreadable("a number too long to compute with")
    return Number(value, significant_digits(token) if value.denominator != 1 else 0)
