"""What a demonstration model may decide, and what is said of its scores."""

from collections.abc import Sequence

from unprm.mini.demonstration import about
from unprm.mini.domain import knows
from unprm.types import DEFAULT_STRATEGY
from unprm.votes.registry import Strategy
from unprm.wire import Demonstration

from .models.model import Model
from .settings import Settings


def default_strategy(settings: Settings, models: Sequence[Model], problem: str | None, *, named: bool) -> Strategy:
    """The vote for a request that names none: by rewards and frequency, but by frequency alone where the rewards would
    be those of a demonstration outside its domain that neither the operator nor the request (`named`) asked for.

    Raises `ModelUnavailable`.
    """
    if named or settings.names_model or not _demonstrations(models) or _knows(problem):
        return DEFAULT_STRATEGY
    return "majority"


def demonstration(models: Sequence[Model], problem: str | None) -> Demonstration | None:
    """What to know of scores by these models; None if none of them is a demonstration."""
    found = _demonstrations(models)
    return about(found[0].name, problem) if found else None


def _demonstrations(models: Sequence[Model]) -> list[Model]:
    return [model for model in models if model.engine.description.demo]


def _knows(problem: str | None) -> bool:
    return problem is not None and knows(problem)
