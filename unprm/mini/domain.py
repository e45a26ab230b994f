"""The domain of `unprm-mini`: word problems of 2 to 8 integer operations. `parse` turns a text into the graph of its
operations, which determines the solution and the exact check of any other (`research/mini/checker.py`)."""

import operator
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace

from unprm import mini
from unprm.mini.stories import Sentence, read
from unprm.types import Solution
from unprm.wire import Demonstration

SYMBOLS = {
    "gain": "+",
    "gain_groups": "+",
    "more": "+",
    "ask_total": "+",
    "loss": "-",
    "loss_groups": "-",
    "give": "-",
    "fewer": "-",
    "ask_difference": "-",
    "multiply": "*",
    "times_as_many": "*",
    "divide": "/",
}
"""By kind of sentence: the operation that it makes of what a holder has."""
MAX_OPERATIONS = 8
LARGEST = 999
_LONGEST = 4096
"""Maximum characters of a problem's text; the model's window holds fewer."""
_STEP = re.compile(
    r"Step [0-9]{1,2}: -?[0-9]{1,16} [-+*/] -?[0-9]{1,16} = -?[0-9]{1,16}\."
    r"(?: The answer is \\boxed\{-?[0-9]{1,16}\}\.)?"
)
"""A step as `write_steps` writes it, right or wrong: the embedded model was never shown others."""
OPPOSITE = {"+": "-", "-": "+", "*": "/", "/": "*"}
_CALCULATE = {"+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.floordiv}


@dataclass(frozen=True, slots=True)
class Quantity:
    """A number in the story: given in the text (`source` None) or the result of an earlier operation."""

    value: int
    source: int | None = None


@dataclass(frozen=True, slots=True)
class Operation:
    """`left symbol right = value`; `symbol` is one of `+ - * /`, division is exact."""

    symbol: str
    left: Quantity
    right: Quantity
    value: int

    @property
    def operands(self) -> tuple[Quantity, Quantity]:
        return self.left, self.right

    def __str__(self) -> str:
        return f"{self.left.value} {self.symbol} {self.right.value} = {self.value}"


@dataclass(frozen=True, slots=True)
class Problem:
    """A word problem. `operations`: those that the answer needs, in order; `Quantity.source` is an index into them.
    `asides`: numbers of the text that none of them uses."""

    text: str
    operations: tuple[Operation, ...]
    asides: tuple[int, ...]

    @property
    def answer(self) -> int:
        """The value of the last operation."""
        return self.operations[-1].value

    @property
    def is_small(self) -> bool:
        """At most `MAX_OPERATIONS` operations, on 1 to `LARGEST`: the embedded model was never shown others."""
        sizes = [quantity.value for o in self.operations for quantity in o.operands] + [self.answer]
        return len(self.operations) <= MAX_OPERATIONS and min(sizes) >= 1 and max(sizes) <= LARGEST

    def solution(self) -> list[str]:
        """The steps of the right solution in the order of the story."""
        return write_steps(list(map(str, self.operations)), self.answer)


def write_steps(equations: Sequence[str], answer: int) -> list[str]:
    """The steps of a solution: at least one equation each, and the boxed answer in the last."""
    steps = [f"Step {number}: {equation}." for number, equation in enumerate(equations, 1)]
    steps[-1] += f" The answer is \\boxed{{{answer}}}."
    return steps


def calculate(symbol: str, left: int, right: int) -> int:
    """`left symbol right`; division rounds down. Raises `ZeroDivisionError`."""
    return int(_CALCULATE[symbol](left, right))


@dataclass(slots=True)
class Ledger:
    """What each holder has at this point of the story, and the operations so far."""

    holdings: dict[str, Quantity] = field(default_factory=dict)
    operations: list[Operation] = field(default_factory=list)

    def operate(self, symbol: str, left: Quantity, right: Quantity) -> Quantity:
        """Records an operation and returns its result; raises `ValueError` for an inexact division."""
        if symbol == "/" and (right.value == 0 or left.value % right.value):
            raise ValueError(f"{left.value} / {right.value} is not an integer")
        value = calculate(symbol, left.value, right.value)
        self.operations.append(Operation(symbol, left, right, value))
        return Quantity(value, len(self.operations) - 1)

    def update(self, holder: str, symbol: str, right: Quantity) -> None:
        self.holdings[holder] = self.operate(symbol, self.holdings[holder], right)

    def apply(self, sentence: Sentence) -> Quantity | None:
        """Processes a sentence; returns the quantity that a question asks for. Raises `KeyError` for an unknown holder,
        `ValueError` for an inexact division."""
        n, have = Quantity(sentence.n), self.holdings
        match sentence.kind:
            case "start":
                have[sentence.a] = n
            case "gain" | "loss" | "multiply" | "divide" as kind:
                self.update(sentence.a, SYMBOLS[kind], n)
            case "gain_groups" | "loss_groups" as kind:
                self.update(sentence.a, SYMBOLS[kind], self.operate("*", n, Quantity(sentence.m)))
            case "give":
                self.update(sentence.a, "-", n)
                self.update(sentence.b, "+", n)
            case "give_all":
                self.update(sentence.b, "+", have.pop(sentence.a))
            case "more" | "fewer" | "times_as_many" as kind:
                # "b has n more than a": whichever of the two is known gives the other
                if sentence.a in have:
                    have[sentence.b] = self.operate(SYMBOLS[kind], have[sentence.a], n)
                else:
                    have[sentence.a] = self.operate(OPPOSITE[SYMBOLS[kind]], have[sentence.b], n)
            case "ask":
                return have[sentence.a]
            case "ask_total" | "ask_difference" as kind:
                return self.operate(SYMBOLS[kind], have[sentence.a], have[sentence.b])
        return None


def parse(text: str) -> Problem:
    """The problem that a text of this domain states, else raises `ValueError`."""
    return from_sentences(text, read(text))


def knows(text: str) -> bool:
    """Whether a text states a problem of the domain, and one of its size."""
    try:
        return len(text) <= _LONGEST and parse(text).is_small
    except ValueError:
        return False


def domain_notice(name: str, solutions: Collection[Solution]) -> Demonstration:
    """What to know about a demonstration's scores of these solutions; `name`: the model's."""
    known = all(_STEP.fullmatch(step) for solution in solutions for step in solution.steps)
    known = known and all(map(knows, {solution.problem for solution in solutions}))
    place = "are in it" if known else "are not all in it: in place of its scores, equations in the steps are checked"
    about = f"{name} is a demonstration: {mini.KNOWLEDGE}; problem and steps {place}."
    return Demonstration(in_domain=known, detail=about)


def from_sentences(text: str, sentences: Iterable[Sentence]) -> Problem:
    """The problem of a story; `text` is its wording. Raises as `parse` does."""
    ledger, answer, story = Ledger(), None, []
    for sentence in sentences:
        story.append(sentence)
        try:
            answer = ledger.apply(sentence)
        except KeyError as unknown:
            raise ValueError(f"the story does not say how many {sentence.item} {unknown} has") from None
    if answer is None or answer.source is None:
        raise ValueError("the text does not end with a question that takes an operation")
    operations = _needed(ledger.operations, answer.source)
    used = {quantity.value for o in operations for quantity in o.operands if quantity.source is None}
    asides = tuple(n for s in story for n in (s.n, s.m) if n and n not in used)
    return Problem(text, operations, asides)


def _needed(operations: list[Operation], last: int) -> tuple[Operation, ...]:
    """The operations that `last` depends on, renumbered, `last` at the end."""
    needed = {last}
    for index in range(last, -1, -1):  # an operation depends on earlier ones only
        if index in needed:
            needed |= {quantity.source for quantity in operations[index].operands if quantity.source is not None}
    place = {old: new for new, old in enumerate(sorted(needed))}

    def move(quantity: Quantity) -> Quantity:
        return quantity if quantity.source is None else Quantity(quantity.value, place[quantity.source])

    return tuple(replace(o, left=move(o.left), right=move(o.right)) for o in map(operations.__getitem__, place))
