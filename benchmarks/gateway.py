"""What the gateway gains: accuracy of a reasoner alone against that of the gateway in front of it, and the tokens saved
by stopping early."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks import clients, servers
from benchmarks.timing import Comparison
from training.data.questions import Question, make_mini
from training.evaluate.metrics import Share
from unprm import mini
from unprm.answers.equivalence import Equivalence
from unprm.answers.extraction import extract

QUESTIONS, BUDGET, ROUND, CLIENTS = 300, 16, 4, 24
SEED = 31_337
"""Seed of questions that are used for nothing else."""
STABLE = (0.95,)
"""Probabilities of an unchanged vote at which sampling stops."""
DIRECTLY = "one sample, without the gateway"


@dataclass(frozen=True, slots=True)
class Answers:
    """Which answers are right, and how many tokens the reasoner generated for all of them."""

    right: list[bool]
    tokens: int

    @property
    def accuracy(self) -> Share:
        """Share of right answers, over questions."""
        return Share.of(list(map(float, self.right)))


def run() -> list[Comparison]:
    """On held-out questions of the embedded model's domain."""
    os.environ["OMP_NUM_THREADS"] = "1"  # otherwise the threads of the two models would block each other
    questions = make_mini(QUESTIONS, SEED)
    with servers.python("/health", "-m", "benchmarks.reasoner") as (upstream, _):
        directly = ask(upstream, questions, None)
        with servers.unprm(f"--upstream-url={upstream}") as (url, _):
            whole = ask(url, questions, 1.0)
            stopped = {stable: ask(url, questions, stable) for stable in STABLE}
    rows = [gain(f"WRF among {BUDGET}", whole, DIRECTLY, directly)]
    for stable, answers in stopped.items():
        what = f"WRF among at most {BUDGET}, stopped when stable with {100 * stable:g} %"
        rows.append(gain(what, answers, DIRECTLY, directly))
        saved = 1 - answers.tokens / whole.tokens
        description = f"tokens of the reasoner, {what}: {100 * saved:.0f} % saved"
        rows.append(Comparison(description, answers.tokens, f"all {BUDGET}", whole.tokens, unit="tokens"))
    return rows


def ask(url: str, questions: Sequence[Question], stable: float | None) -> Answers:
    """Sends one chat request per question; with `stable`, `url` is the gateway's, and it is sent as an option."""
    unprm = {"strategy": "wrf", "budget": BUDGET, "round": ROUND, "stable": stable}
    more = {} if stable is None else {"unprm": unprm}
    bodies = [
        clients.request("/v1/chat/completions", _chat(question.problem, number) | more)
        for number, question in enumerate(questions)
    ]
    replies = [reply.json() for reply in clients.call(url, bodies, CLIENTS)]
    texts = [reply["choices"][0]["message"]["content"] for reply in replies]
    return Answers(correct(texts, questions), sum(reply["usage"]["completion_tokens"] for reply in replies))


def correct(texts: Sequence[str], questions: Sequence[Question]) -> list[bool]:
    """For each solution, whether it reaches its question's gold answer."""
    equivalence = Equivalence()
    return [_is_right(equivalence, text, question.gold_answer) for text, question in zip(texts, questions, strict=True)]


def _chat(problem: str, number: int) -> dict[str, Any]:
    """A chat request with a seed, so that the candidates of a smaller request are among those of a larger one."""
    return {"model": mini.NAME, "messages": [{"role": "user", "content": problem}], "seed": 1000 * number}


def _is_right(equivalence: Equivalence, text: str, gold: str) -> bool:
    found = extract(text)
    return found is not None and len(set(equivalence.classes([found, gold]))) == 1


def gain(what: str, ours: Answers, name: str, theirs: Answers) -> Comparison:
    """Compares two accuracies; the description includes their difference over the same questions."""
    difference = Share.of([float(a) - float(b) for a, b in zip(ours.right, theirs.right, strict=True)])
    description = (
        f"accuracy in % (95 % interval): {what} {ours.accuracy.in_percent}, {name} {theirs.accuracy.in_percent}, "
        f"difference {difference.in_percent}"
    )
    return Comparison(description, ours.accuracy.mean, name, theirs.accuracy.mean, unit="share")
