"""Generates problems of the `unprm-mini` domain."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from unprm.mini.domain import LARGEST, MAX_OPERATIONS, SYMBOLS, Ledger, Problem, calculate, from_sentences
from unprm.mini.stories import SETTINGS, Sentence, Setting, render

MIN_OPERATIONS = 2


def _even(rng: random.Random) -> int:
    return rng.randint(MIN_OPERATIONS, MAX_OPERATIONS)


def _mostly_short(rng: random.Random) -> int:
    lengths = range(MIN_OPERATIONS, MAX_OPERATIONS + 1)
    return rng.choices(lengths, [(2 / 3) ** length for length in lengths])[0]


@dataclass(frozen=True, slots=True)
class Style:
    """The distribution of problems. `length` draws the approximate number of operations; `pair`: probability of a
    second holder; `outright`: weight of stating that holder's number outright, where each kind of comparison has 1."""

    length: Callable[[random.Random], int]
    pair: float
    outright: int


EVERYDAY = Style(_mostly_short, pair=0.25, outright=5)
DEMANDING = Style(_even, pair=0.5, outright=1)
"""Long and entangled problems are as frequent as others: there is more to learn from them."""


class _Storyteller:
    """Makes up one story; every choice comes from `rng`."""

    def __init__(self, rng: random.Random, style: Style) -> None:
        self.rng, self.style = rng, style
        self.setting: Setting = rng.choice(SETTINGS)
        self.a, self.b, self.c = rng.sample(self.setting.holders, 3)
        self.item, self.other_item = rng.sample(self.setting.items, 2)
        self.ledger = Ledger()
        self.sentences: list[Sentence] = []

    def number(self, low: int, high: int) -> int:
        """A number from `low` to `high`, uniform in the number of digits, so that small ones are as likely as large."""
        digits = self.rng.randint(len(str(low)), len(str(high)))
        return self.rng.randint(max(low, 10 ** (digits - 1)), min(high, 10**digits - 1))

    def say(self, kind: str, **fields: str | int) -> None:
        sentence = Sentence(kind, item=self.item, **fields)  # type: ignore[arg-type]
        self.ledger.apply(sentence)
        self.sentences.append(sentence)

    def write(self) -> Problem:
        target = self.style.length(self.rng)
        pair = self.rng.random() < self.style.pair
        self.say("start", a=self.a, n=self.number(10, 300))
        self._events([self.a], self.rng.randint(0, target - 2) if pair else target)
        if pair:
            self._introduce()
            self._events([self.b, self.b, self.a], target - 1)
        question = self._question()
        self._digress()
        sentences = [*self.sentences, question]
        text = " ".join(render(s, self.rng.choice(self.setting.templates[s.kind])) for s in sentences)
        return from_sentences(text, sentences)

    def _introduce(self) -> None:
        """Says how many the second holder has: outright, or by comparison from either side."""
        have = self.ledger.holdings[self.a].value
        kind = self.rng.choice(["start"] * self.style.outright + ["more", "fewer", "times_as_many"])
        first, second = (self.b, self.a) if self.rng.random() < 0.3 else (self.a, self.b)
        if kind == "start":
            self.say("start", a=self.b, n=self.number(10, 300))
        elif kind == "times_as_many":
            divisors = [d for d in range(2, 10) if have % d == 0]
            inverse = first == self.b and divisors
            n = self.rng.choice(divisors) if inverse else self.rng.randint(2, 9)
            self.say(kind, a=self.b if inverse else self.a, b=self.a if inverse else self.b, n=n)
        else:
            self.say(kind, a=first, b=second, n=self.number(2, max(2, have - 2)))

    def _events(self, holders: Sequence[str], operations: int) -> None:
        """Lets things happen to the holders until the story has `operations` of them."""
        while len(self.ledger.operations) < operations:
            self._event(self.rng.choice(holders))

    def _event(self, holder: str) -> None:
        """One change of what `holder` has; nothing happens if the number drawn would not fit."""
        have, rng = self.ledger.holdings[holder].value, self.rng
        other = self.b if holder == self.a else self.a
        kind = rng.choice(["gain", "loss", "multiply", "divide", "gain_groups", "loss_groups", "give"])
        n = m = 0
        match kind:
            case "gain":
                n = self.number(2, 300)
            case "loss" | "give":
                n = self.number(2, max(2, have - 2))
            case "multiply":
                n = rng.randint(2, 9)
            case "divide":
                n = rng.choice([d for d in range(2, 10) if have % d == 0] or [0])
            case _:
                n, m = rng.randint(2, 9), rng.randint(3, 60)
        if not n or not 2 <= calculate(SYMBOLS[kind], have, n * (m or 1)) <= LARGEST:
            return
        if kind == "give" and other not in self.ledger.holdings:
            return
        self.say(kind, a=holder, b=other if kind == "give" else "", n=n, m=m)

    def _question(self) -> Sentence:
        have = self.ledger.holdings
        if self.b in have:
            kinds = ["ask", "ask_total"] + ["ask_difference"] * (have[self.a].value > have[self.b].value)
            kind = self.rng.choice(kinds)
            holder, other = self.rng.sample([self.a, self.b], 2) if kind == "ask" else (self.a, self.b)
            return Sentence(kind, a=holder, b=other, item=self.item)
        return Sentence("ask", a=self.a, item=self.item)

    def _digress(self) -> None:
        while self.rng.random() < 0.3:
            item = self.rng.choice([self.item, self.other_item])
            beside = [
                Sentence("start", a=self.c, item=item, n=self.number(10, 300)),
                Sentence("aside", a=self.rng.choice([self.a, self.c]), n=self.number(2, 99)),
            ]
            self.sentences.insert(self.rng.randint(1, len(self.sentences)), self.rng.choice(beside))


def generate(rng: random.Random, style: Style = EVERYDAY) -> Problem:
    """A new problem with 2 to 8 needed operations on quantities up to `LARGEST`."""
    while True:
        try:
            problem = _Storyteller(rng, style).write()
        except ValueError:
            continue  # the question turned out to need no operation: tell another story
        if len(problem.operations) >= MIN_OPERATIONS and problem.is_small:
            return problem
