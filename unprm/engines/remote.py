"""Scores through a vLLM server: `vllm serve … --runner pooling`."""

from collections.abc import Sequence

import httpx
from pydantic import BaseModel, ConfigDict

from unprm.engines.model_queue import plain_sum
from unprm.engines.vllm.pooled import step_scores
from unprm.errors import ModelInvalid
from unprm.formats.family import PrmFormat
from unprm.types import Encoded, ModelDescription, StepScores

SECONDS = 600.0
"""Timeout of a batch; a server that takes longer has failed."""


class _Row(BaseModel):
    model_config = ConfigDict(allow_inf_nan=False)

    index: int
    data: list[list[float]]


class _Pooled(BaseModel):
    data: list[_Row]


class _Served(BaseModel):
    id: str
    max_model_len: int | None = None


class _Models(BaseModel):
    data: list[_Served]


class RemoteEngine:
    """The model of the server at `url`, with API key `key`. Raises `ModelInvalid` if the server does not score, or has
    a smaller window than the description."""

    def __init__(self, url: str, key: str | None, format: PrmFormat, description: ModelDescription) -> None:
        self.format: PrmFormat = format
        self.description = description
        self._client = httpx.Client(
            base_url=url,
            headers={"Authorization": f"Bearer {key}"} if key else {},
            timeout=httpx.Timeout(SECONDS, connect=10.0),
            transport=httpx.HTTPTransport(retries=2),
        )
        try:
            response = self._client.get("/v1/models")
            response.raise_for_status()
            self._served = _Models.model_validate_json(response.content).data[0]
            window = self._served.max_model_len
            if window is not None and window < description.max_tokens:
                raise ValueError(
                    f"it reads {window} tokens, the model {description.max_tokens}: leave out --max-model-len"
                )
            self.score([plain_sum(self)])
        except (httpx.HTTPError, LookupError, ValueError, RuntimeError) as error:
            self.close()
            reason = str(error).partition("\n")[0]
            raise ModelInvalid(
                f"{url} does not score: start it as `vllm serve MODEL --runner pooling` with the options that the "
                f"documentation names for family {format.family} ({reason})"
            ) from error

    def score(self, batch: Sequence[Encoded]) -> list[StepScores]:
        """Step scores per item; vLLM runs all tokens of each. Raises `RuntimeError` if it answers with an error."""
        body = {
            "model": self._served.id,
            "input": [list(item.ids_to_last_position) for item in batch],
            "task": "token_classify",
            "use_activation": False,
        }
        response = self._client.post("/pooling", json=body)
        if response.status_code != 200:
            raise RuntimeError(f"vLLM answered {response.status_code}")
        found = {row.index: row.data for row in _Pooled.model_validate_json(response.content).data}
        return [
            StepScores(step_scores(item, found[index]), len(item.ids_to_last_position), len(item.ids))
            for index, item in enumerate(batch)
        ]

    def close(self) -> None:
        self._client.close()
