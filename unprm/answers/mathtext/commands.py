"""LaTeX commands with their arguments: fractions, roots, functions, sums, matrices."""

from fractions import Fraction

from unprm.answers.mathtext.atoms import Atoms
from unprm.answers.mathtext.tree import (
    Call,
    Group,
    Matrix,
    Node,
    Number,
    Relation,
    Symbol,
    Unreadable,
    structure,
    symbols,
)
from unprm.answers.mathtext.words import FUNCTION_NAMES, words_in

_ALIASES = {"asin": "arcsin", "acos": "arccos", "atan": "arctan", "acot": "arccot", "lg": "log"}
_INVERSES = {"sin": "arcsin", "cos": "arccos", "tan": "arctan", "cot": "arccot"}
_SYMBOLS = words_in(
    """
    alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi pi rho sigma tau upsilon phi
    chi psi omega Gamma Delta Theta Lambda Xi Pi Sigma Phi Psi Omega infty ell hbar hati hatj hatk imath
    jmath aleph
    """
)
_ACCENTS = frozenset([
    "\\overline", "\\vec", "\\hat", "\\bar", "\\tilde", "\\mathcal", "\\mathbf", "\\mathfrak", "\\angle",
    "\\triangle", "\\overrightarrow", "\\widehat",
])  # fmt: skip
_POINTED = frozenset(["\\vec", "\\hat", "\\mathbf", "\\overrightarrow"])  # over i, j, k: unit vectors
_OF_SEVERAL = frozenset(["gcd", "lcm", "max", "min"])
_MATRICES = {
    "matrix": "matrix", "pmatrix": "matrix", "bmatrix": "matrix", "smallmatrix": "matrix", "array": "matrix",
    "vmatrix": "determinant",
}  # fmt: skip


class Commands(Atoms):
    """A cursor over tokens that reads atoms and commands."""

    def command(self, command: str) -> Node:
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
            case "lfloor" | "lceil":
                return self._rounding(name[1:])
            case "sum":
                return self._sum()
            case "emptyset":
                return Group("\\{", (), "\\}")
        if name in _SYMBOLS:
            return self.variable(command) if name not in ("infty", "pi") else Symbol(command)
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

    def _rounding(self, name: str) -> Node:
        inner = self.inside(self.sum)
        self.expect(f"\\r{name}")
        return Call(name, (inner,))

    def _sum(self) -> Node:
        """\\sum_{k=1}^{n} body, with its body up to the next + or -."""
        self.expect("_")
        below = self.argument()
        self.expect("^")
        above = self.argument()
        match below:
            case Relation(("=",), (Symbol() as index, first)):
                return Call("sum", (index, first, above, self.product()))
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
        args = self._function_arguments()
        if (len(args) > 1) != (name in _OF_SEVERAL):
            raise Unreadable("a function of as many arguments")
        if base is not None:
            if name != "log":
                raise Unreadable("a subscript of a function")
            args = (*args, base)
        node = Call(name, args)
        return Call("^", (node, exponent)) if exponent is not None else self.postfixed(node)

    def _function_arguments(self) -> tuple[Node, ...]:
        if self.peek() in ("(", "{", "["):
            inner = self.primary()
            return inner.items if isinstance(inner, Group) and inner.opening in ("", "(") else (inner,)
        factors = self.factors(self.signed_power(), argument=True)
        argument = Call("*", tuple(factors)) if len(factors) > 1 else factors[0]
        if self.peek() == "/" and not symbols(argument):  # \\sin x/\\cos x divides outside, \\ln 2/3 is not read at all
            raise Unreadable("a quotient after a function")
        return (argument,)

    def _matrix(self, environment: str) -> Node:
        if environment not in _MATRICES:
            raise Unreadable(environment)
        if environment == "array":  # {cc}, the alignment of its columns
            self.expect("{")
            while self.take() not in ("}", ""):
                pass
        rows: list[tuple[Node, ...]] = []
        while not self.peek().startswith("\\end{"):
            rows.append(self._matrix_row())
            if not self.accept("\\\\"):
                break
        if not self.take().startswith("\\end{"):
            raise Unreadable("an open matrix")
        return Matrix(_MATRICES[environment], tuple(rows))

    def _matrix_row(self) -> tuple[Node, ...]:
        cells = [self.sum()]
        while self.accept("&"):
            cells.append(self.sum())
        return tuple(cells)
