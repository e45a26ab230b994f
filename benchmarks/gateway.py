"""What a change of the base URL gains: answers of a reasoner asked directly against those of the gateway before it, and
what stopping early saves."""

import json
import os
from collections.abc import Sequence
from contextlib import closing
from typing import Any

from benchmarks import clients, servers
from benchmarks.timing import Comparison
from training.metrics import Share
from training.questions import Question, make_mini
from unprm import mini
from unprm.equivalence import Equivalence
from unprm.extraction import extract

QUESTIONS, BUDGET, ROUND, CLIENTS = 300, 16, 4, 24
SEED = 31_337
"""Of questions that nothing else was made of."""
CONFIDENCES = (0.95,)
DIRECTLY = "one sample, without the gateway"


class Answers:
    """What came back: which are right, and the tokens that the reasoner wrote for each."""

    def __init__(self, right: list[bool], tokens: int) -> None:
        self.right, self.tokens = right, tokens

    @property
    def accuracy(self) -> Share:
        """Over questions."""
        return Share.of([float(own) for own in self.right])


def run() -> list[Comparison]:
    """On held-out questions of the embedded model's domain."""
    os.environ["OMP_NUM_THREADS"] = "1"  # two models on this machine would wait for each other's threads
    questions = make_mini(QUESTIONS, SEED)
    with servers.running("/health", "-m", "benchmarks.reasoner") as (upstream, _):
        directly = ask(upstream, questions, None)
        with servers.unprm(f"--model={mini.NAME}", "--device=cpu", f"--upstream-url={upstream}") as url:
            whole = ask(url, questions, 1.0)
            stopped = {confidence: ask(url, questions, confidence) for confidence in CONFIDENCES}
    rows = [gain(f"WRF among {BUDGET}", whole, DIRECTLY, directly)]
    for confidence, own in stopped.items():
        what = f"WRF among at most {BUDGET}, stopped when {100 * confidence:g} % sure"
        rows.append(gain(what, own, DIRECTLY, directly))
        saved = 1 - own.tokens / whole.tokens
        told = f"tokens of the reasoner, {what}: {100 * saved:.0f} % saved"
        rows.append(Comparison(told, own.tokens, f"all {BUDGET}", whole.tokens, 1, "tokens"))
    return rows


def ask(url: str, questions: Sequence[Question], confidence: float | None) -> Answers:
    """A chat about each question; through the gateway if there is a confidence, which is asked for."""
    unprm = {"strategy": "wrf", "budget": BUDGET, "round": ROUND, "confidence": confidence}
    more = {} if confidence is None else {"unprm": unprm}
    bodies = [
        clients.request("/v1/chat/completions", _chat(own.problem, number) | more)
        for number, own in enumerate(questions)
    ]
    told: dict[int, Any] = {}

    def note(number: int, answer: bytes) -> None:
        told[number] = json.loads(answer)

    clients.call(url, bodies, CLIENTS, note)
    texts = [told[number]["choices"][0]["message"]["content"] for number in range(len(questions))]
    return Answers(correct(texts, questions), sum(own["usage"]["completion_tokens"] for own in told.values()))


def correct(texts: Sequence[str], questions: Sequence[Question]) -> list[bool]:
    """Which solutions come to the answers of their questions."""
    with closing(Equivalence()) as equivalence:
        return [_is_right(equivalence, text, own.answer) for text, own in zip(texts, questions, strict=True)]


def _chat(problem: str, number: int) -> dict[str, Any]:
    """With a seed: whoever asks for more candidates gets those of whom asks for fewer, and others."""
    return {"model": mini.NAME, "messages": [{"role": "user", "content": problem}], "seed": 1000 * number}


def _is_right(equivalence: Equivalence, text: str, answer: str) -> bool:
    found = extract(text)
    return found is not None and len(set(equivalence.classes([found, answer]))) == 1


def gain(what: str, ours: Answers, name: str, theirs: Answers) -> Comparison:
    """The two accuracies, and their difference over the same questions."""
    difference = Share.of([float(a) - float(b) for a, b in zip(ours.right, theirs.right, strict=True)])
    told = (
        f"accuracy in % (95 % interval): {what} {ours.accuracy.in_percent}, {name} {theirs.accuracy.in_percent}, "
        f"difference {difference.in_percent}"
    )
    return Comparison(told, ours.accuracy.mean, name, theirs.accuracy.mean, 1, "share")
