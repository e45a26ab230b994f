"""Responses about the server: its models, their state, and its limits."""

from typing import Literal

from pydantic import Field

from unprm.types import DEFAULT_STRATEGY, ModelDescription
from unprm.votes.registry import Strategy
from unprm.wire.responses import VoteCalibrationOut
from unprm.wire.types import WireModel


class LimitsOut(WireModel):
    """The server's limits."""

    max_solutions: int
    max_steps_per_solution: int
    max_tokens_per_solution: int
    max_body_bytes: int
    max_queued_tokens: int
    max_request_seconds: float
    max_candidates: int | None = Field(
        default=None,
        description="Candidates per gateway answer (`unprm.budget`); null without a gateway.",
    )


class ModelState(WireModel):
    """A model's state as `/admin/models` reports it; `detail`: why it is not ready."""

    name: str
    state: Literal["loading", "ready", "failed"]
    base: str | None = None
    adapter: str | None = None
    detail: str | None = None


class ModelsResponse(WireModel):
    """All models: the default first, then the other served ones, then the models that are loading or failed to load."""

    models: list[ModelState]


class ModelResponse(ModelDescription):
    """A served model, all their names, and the server's limits; `demo` marks the embedded model, which knows only its
    own small domain."""

    max_tokens: int = Field(default=0, exclude=True)
    models: list[str]
    default_strategy: Strategy = Field(
        default=DEFAULT_STRATEGY,
        description="The vote of `POST /vote`; with a demonstration model, the one outside its domain.",
    )
    vote_calibration: VoteCalibrationOut | None = Field(
        default=None, description="The basis of `risk`; null without --vote-calibration."
    )
    limits: LimitsOut


class StatusResponse(WireModel):
    """Response of a health probe."""

    status: Literal["ok"] = "ok"
