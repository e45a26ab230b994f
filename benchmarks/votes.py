"""Votes with given step scores: library calls against Math-Verify, and HTTP against library calls."""

import random

from benchmarks import clients, servers
from benchmarks.answers import with_math_verify
from benchmarks.timing import Comparison, median, timed
from unprm.answers.equivalence import Equivalence
from unprm.votes import decide as votes

CANDIDATES, STEPS, VOTES, CLIENTS, ROUNDS = 16, 5, 2000, 8, 5
Ballot = tuple[list[str], list[list[float]]]


def run() -> list[Comparison]:
    """Measures votes over 16 candidates whose answers are plain numbers not seen before."""
    ballots = [_ballots(random.Random(seed)) for seed in range(ROUNDS)]
    few = ballots[0][:50]
    equivalence = Equivalence()
    library = VOTES / median(lambda batch: _decide_all(equivalence, batch), ballots)
    plain = len(few) / timed(lambda: [with_math_verify(answers) for answers, _ in few])
    with servers.unprm() as (url, _):
        clients.call(url, [_request(*ballot) for ballot in few], CLIENTS)
        bodies = [[_request(*ballot) for ballot in batch] for batch in ballots]
        over = VOTES / median(lambda requests: clients.call(url, requests, CLIENTS), bodies)
    what = f"WRF votes over {CANDIDATES} candidates, step scores given"
    return [
        Comparison(f"{what}: library calls", library, "Math-Verify with each class", plain, ROUNDS, "/s"),
        Comparison(f"{what}: over HTTP, {CLIENTS} clients", over, "library calls", library, ROUNDS, "/s"),
    ]


def _ballots(rng: random.Random) -> list[Ballot]:
    def ballot() -> Ballot:
        known = [str(rng.randint(-9999, 99999)) for _ in range(4)]
        scores = [[round(rng.random(), 4) for _ in range(STEPS)] for _ in range(CANDIDATES)]
        return rng.choices(known, k=CANDIDATES), scores

    return [ballot() for _ in range(VOTES)]


def _decide_all(equivalence: Equivalence, ballots: list[Ballot]) -> None:
    for answers, scores in ballots:
        votes.decide("wrf", equivalence.classes(answers), list(map(min, scores)))


def _request(answers: list[str], scores: list[list[float]]) -> clients.Request:
    solutions = [
        {"steps": [f"step {k}" for k in range(STEPS)], "answer": answer, "step_scores": step_scores}
        for answer, step_scores in zip(answers, scores, strict=True)
    ]
    return clients.request("/vote/wrf", {"solutions": solutions})
