"""Process reward models: score the steps of candidate solutions, and vote for an answer."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # `import unprm` takes neither PyTorch nor pydantic
    from collections.abc import Sequence

    from unprm.types import Engine
    from unprm.wire import VoteResponse

__all__ = ["load_prm", "score", "vote"]


def load_prm(name_or_path: str = "unprm-mini", **options: Any) -> "Engine":
    """Loads a PRM: the embedded model, one on the hub, or a directory. Needs the extra `serve`.

    `options`: `adapter`, `family`, `device`, `dtype` and the other fields of `ModelSpec` and `EngineOptions`
    (`unprm.models.options`). Close it, or end the program, to free its memory. Raises `unprm.errors.ModelInvalid`.
    """
    from unprm.models.load import load_engine

    return load_engine(name_or_path, **options)


def score(prm: "Engine", problem: str, solutions: "Sequence[Any]") -> "list[tuple[float, ...] | None]":
    """For each solution, a score in [0, 1] of every step: the probability that all is right so far; None for a solution
    without a step, or too long for the model.

    A solution is a text, the list of its steps, or an object as in a request to the server (`unprm.wire.SolutionIn`).
    Raises `pydantic.ValidationError` (a `ValueError`) for anything else.
    """
    from unprm.library import score

    return score(prm, problem, solutions)


def vote(
    problem: str | None,
    solutions: "Sequence[Any]",
    strategy: str = "wrf",
    *,
    prm: "Engine | None" = None,
    step_scores: "Sequence[Sequence[float] | None] | None" = None,
    **settings: Any,
) -> "VoteResponse":
    """Elects an answer among those of the solutions, as `POST /vote/{strategy}` of the server does.

    Rewards come from `prm`, which is run only if they decide, from `step_scores[i]` for solution i, or from a
    solution's own. `settings`: those of the vote (`unprm.votes`), and the request's: `aggregate`, `split` … A vote that
    needs no rewards needs neither `prm` nor a problem.

    Raises `unprm.errors.NoAnswer` if no solution states an answer, `unprm.errors.InvalidRequest` for step scores that
    are not as many as the steps, and `ValueError` for other bad input, and for a vote whose rewards or confidences are
    missing.
    """
    from unprm.library import vote

    return vote(strategy, problem, solutions, prm, step_scores, settings)
