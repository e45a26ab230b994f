"""The atoms of an expression: numbers, names, brackets, commands with their arguments."""

from abc import ABC, abstractmethod
from collections.abc import Callable

from unprm.answers.mathtext.tokens import is_letters, is_number, is_text, number, significant_digits
from unprm.answers.mathtext.tree import Call, Group, Matrix, Node, Number, Symbol, Text, Unreadable, structure
from unprm.answers.mathtext.words import FUNCTION_NAMES, is_word

MAX_DEPTH = 40


BRACKETS = {"(": ")", "[": "]", "\\{": "\\}"}
_CLOSING = frozenset(BRACKETS.values())


class Atoms(ABC):
    """A cursor over tokens that reads atoms. `grammar` reads what stands between them."""

    def __init__(self, tokens: list[str]) -> None:
        self.tokens = tokens
        self.at = 0
        self.depth = 0
        self.bars = 0  # how many |…| are open

    @abstractmethod
    def sequence(self) -> Node:
        """Reads anything that may stand in brackets."""

    @abstractmethod
    def sum(self) -> Node:
        """Reads terms with + and - between them."""

    @abstractmethod
    def command(self, command: str) -> Node:
        """Reads the arguments of a command whose token was just taken."""

    @abstractmethod
    def product(self) -> Node:
        """Reads factors."""

    @abstractmethod
    def factors(self, first: Node, *, argument: bool) -> list[Node]:
        """Reads the factors that follow `first` without a sign; `argument`: they are in a function's argument."""

    @abstractmethod
    def signed_power(self) -> Node:
        """Reads a power that may have a sign."""

    @abstractmethod
    def postfixed(self, node: Node) -> Node:
        """Reads the signs that follow an atom."""

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
        if self.peek() in ("+", "-"):
            sign = self.take()
            argument = self.signed_power()
            return Call("neg", (argument,)) if sign == "-" else argument
        return self.primary()

    def _atom(self, token: str) -> Node:
        if is_number(token):
            return self._literal(token)
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
            return self.command(token)
        raise Unreadable(token)

    def _literal(self, token: str) -> Node:
        value = number(token)
        if value is None:
            raise Unreadable("a number too long to compute with")
        return Number(value, significant_digits(token) if value.denominator != 1 else 0)

    def _letters(self, run: str) -> Node:
        """A function, a word, or a product of variables, of which only the first is taken."""
        if run in FUNCTION_NAMES or run == "sqrt":
            return self.command("\\" + run)
        if run in ("pi", "infty", "infinity", "inf"):
            return Symbol("\\pi" if run == "pi" else "\\infty")
        prefix = next((name for name in ("sin", "cos", "tan", "log", "ln") if run.startswith(name)), "")
        if prefix and len(run) <= len(prefix) + 2:
            self.at -= 1
            self.tokens[self.at] = run[len(prefix) :]
            return self.command("\\" + prefix)
        if len(run) > 1 and (run.isupper() or is_word(run)):
            return Text(run)
        if len(run) > 1:
            self.at -= 1
            self.tokens[self.at] = run[1:]
        return self.variable(run[0])

    def variable(self, name: str) -> Node:
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
        if closing not in _CLOSING:
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

    def inside(self, read: Callable[[], Node]) -> Node:
        """What `read` reads inside brackets, where | opens an absolute value again."""
        bars, self.bars = self.bars, 0
        node = read()
        self.bars = bars
        return node
