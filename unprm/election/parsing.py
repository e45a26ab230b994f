"""Candidates of a request as a vote takes them: split into steps, with their answers."""

import sys
from dataclasses import replace
from typing import NamedTuple

from unprm.answers.extraction import extract
from unprm.errors import BlankSolution, TooManySteps, Unscorable
from unprm.types import Solution
from unprm.wire import Candidates


class ParsedCandidates(NamedTuple):
    """A request's solutions with their answers; `unscorable`: by index, why a solution can't have a reward."""

    solutions: list[Solution]
    unscorable: dict[int, Unscorable]

    @property
    def missing(self) -> dict[int, Solution]:
        """The solutions that a model has to score, by index."""
        return {
            index: solution
            for index, solution in enumerate(self.solutions)
            if solution.step_scores is None and index not in self.unscorable
        }

    @property
    def given(self) -> bool:
        """Whether the request came with the scores of all scorable solutions."""
        return not self.missing and any(solution.step_scores for solution in self.solutions)


def parse(request: Candidates, max_steps: int = sys.maxsize) -> ParsedCandidates:
    """The solutions, in the order of the request. Raises `InvalidRequest` as `Candidates.candidates`."""
    solutions, unscorable = [], {}
    for index, (solution, text) in enumerate(zip(request.candidates(), request.texts(), strict=True)):
        scores, answer = solution.step_scores, solution.answer
        if (error := why_unscorable(index, solution, max_steps)) is not None:
            unscorable[index], scores = error, None
        if answer is None:
            answer = extract(text, request.extraction)
        stated = answer is not None and answer.strip() != ""
        solutions.append(replace(solution, answer=answer if stated else None, step_scores=scores))
    return ParsedCandidates(solutions, unscorable)


def why_unscorable(index: int, solution: Solution, max_steps: int) -> Unscorable | None:
    """Why no model can score the solution, judged by its steps alone."""
    if not solution.steps:
        return BlankSolution(index)
    return TooManySteps(index, max_steps) if len(solution.steps) > max_steps else None
