"""Addresses of ThinkBooster's service that say how an answer is elected: `/v1/STRATEGY/SCORER/chat/completions`.

Those of its strategies that the gateway has too: `self_consistency`, a majority, and `offline_bon/prm`, the completion
with the best reward. Its names and defaults are those of `service_app` at github.com/IINemo/thinkbooster.
"""

from abc import abstractmethod
from typing import Self

from pydantic import Field, model_validator

from unprm.openai_api import Json
from unprm.types import Aggregate

from .schema import MOST, ChatRequest

_IN_ADDRESS = {"tts_strategy", "tts_scorer", "provider"}
"""Fields that the address replaces, as in ThinkBooster."""


class AddressedRequest(ChatRequest):
    """A chat request whose address says how the answer is elected; `unprm` can set the rest."""

    @property
    @abstractmethod
    def terms(self) -> Json:
        """The fields of `unprm` that the address and ThinkBooster's fields set."""

    @model_validator(mode="after")
    def _set_terms(self) -> Self:
        if self.uses_tools:
            raise ValueError("there is no vote on tool calls: send requests with tools to /v1/chat/completions")
        known = type(self).model_fields.keys() - ChatRequest.model_fields.keys()
        if others := [n for n in self.model_extra or () if n.startswith("tts_") and n not in _IN_ADDRESS]:
            raise ValueError(f"{', '.join(others)}: has no meaning here, expected {', '.join(sorted(known))}")
        if twice := sorted(self.terms.keys() & self.unprm.model_fields_set):
            raise ValueError(f"{' and '.join(twice)} of unprm: set by the address and its fields already")
        self.unprm = self.unprm.model_copy(update=self.terms)
        return self

    def for_upstream(self) -> Json:
        """The request without the gateway's and ThinkBooster's fields."""
        left_out = _IN_ADDRESS | (type(self).model_fields.keys() - ChatRequest.model_fields.keys())
        return {name: value for name, value in super().for_upstream().items() if name not in left_out}


class SelfConsistencyRequest(AddressedRequest):
    """A majority of `num_paths` completions."""

    num_paths: int = Field(default=5, ge=1, le=MOST)

    @property
    def terms(self) -> Json:
        """See `AddressedRequest`."""
        return {"strategy": "majority", "budget": self.num_paths}


class OfflineBestOfNRequest(AddressedRequest):
    """The best of `tts_num_trajectories` completions by their rewards."""

    tts_num_trajectories: int = Field(default=8, ge=1, le=MOST)
    tts_score_aggregation: Aggregate = "min"

    @property
    def terms(self) -> Json:
        """See `AddressedRequest`."""
        return {"strategy": "prm", "budget": self.tts_num_trajectories, "aggregate": self.tts_score_aggregation}
