"""Labels of a question's solutions, balanced so that neither the place of a step nor its question tells its label."""

from collections.abc import Iterable, Iterator, Sequence

from ..schema import LabelledSolution

Judged = tuple[tuple[str, ...], int | None]
"""A solution's steps, and the index of its first wrong one, None if all are right."""


def balanced(problem: str, solutions: Iterable[Judged]) -> Iterator[LabelledSolution]:
    """The solutions of one problem, up to their first errors, with as many right as wrong steps at every place: those
    of the first solutions are kept, the labels of others left out. A step after the same steps counts once."""
    labels: dict[tuple[str, ...], bool] = {}
    for steps, wrong in solutions:
        for index in range(len(steps) if wrong is None else wrong + 1):
            labels[steps[: index + 1]] = index != wrong
    kept = set(_even(labels))
    # longest first, so that a step is labelled in a solution that goes on after it
    for steps in sorted(kept, key=lambda steps: (-len(steps), steps)):
        prefixes = [steps[: index + 1] for index in range(len(steps))]
        here = tuple(labels[prefix] if prefix in kept else None for prefix in prefixes)
        if steps in kept:
            kept.difference_update(prefixes)
            yield LabelledSolution(problem, steps, here)


def _even(labels: dict[tuple[str, ...], bool]) -> Iterator[tuple[str, ...]]:
    for place in {len(steps) for steps in labels}:
        sides: Sequence[list[tuple[str, ...]]] = [
            [steps for steps, label in labels.items() if len(steps) == place and label is right]
            for right in (True, False)
        ]
        count = min(map(len, sides))
        for side in sides:
            yield from side[:count]
