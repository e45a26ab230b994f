"""Questions of the embedded model's domain with solutions, and the requests that score them."""

import json
import random

from benchmarks.clients import Request
from research.mini.checker import labels
from research.mini.slips import Author
from training.schema import LabelledSolution
from unprm.mini.domain import Problem
from unprm.mini.storyteller import DEMANDING, generate

CANDIDATES, QUESTIONS = 4, 20
Query = tuple[str, list[list[str]]]
"""A problem, and solutions as lists of steps."""


def zipf(rng: random.Random, count: int, candidates: int = CANDIDATES, questions: int = QUESTIONS) -> list[Query]:
    """Problems with solutions; the frequency of the k-th problem is proportional to 1 / k."""
    problems = [generate(rng, DEMANDING) for _ in range(questions)]
    weights = [1 / (rank + 1) for rank in range(questions)]
    return [_query(rng, problem, candidates) for problem in rng.choices(problems, weights, k=count)]


def single(seed: int, candidates: int) -> Query:
    """One problem with solutions."""
    rng = random.Random(seed)
    return _query(rng, generate(rng, DEMANDING), candidates)


def labelled(seed: int, count: int) -> list[LabelledSolution]:
    """One solution for each of `count` problems, with the exact checker's labels."""
    rng = random.Random(seed)
    problems = [generate(rng, DEMANDING) for _ in range(count)]
    solved = [(problem, Author(rng).solve(problem)) for problem in problems]
    return [LabelledSolution(problem.text, tuple(steps), tuple(labels(problem, steps))) for problem, steps in solved]


def score_steps(query: Query) -> Request:
    return "/score_steps", json.dumps({"problem": query[0], "solutions": query[1]}).encode()


def _query(rng: random.Random, problem: Problem, candidates: int) -> Query:
    return problem.text, [Author(rng).solve(problem) for _ in range(candidates)]
