"""Who scores solutions for an evaluation: a model in this process, or a running server."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol

import httpx

from unprm.errors import ModelUnavailable
from unprm.types import Engine
from unprm.wire import ScoreResponse

Scores = tuple[float, ...] | None
"""Of each step, in [0, 1]; None for a solution that does not fit the model's window."""
SECONDS = 600.0
"""A server that takes longer for a request has failed."""
IN_FLIGHT = 8
"""Requests to a server at the same time: it batches them."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A solution to score."""

    problem: str
    steps: tuple[str, ...]


class Scorer(Protocol):
    """Scores the steps of solutions; `name`: the model's."""

    @property
    def name(self) -> str:
        """The model's name."""
        ...

    def score(self, batch: Sequence[Asked]) -> list[Scores]:
        """Scores per solution. Raises `ModelUnavailable` if a server does not answer."""
        ...


class EngineScorer:
    """Scores with a model in this process."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    @property
    def name(self) -> str:
        """The model's name."""
        return self._engine.description.name

    def score(self, batch: Sequence[Asked]) -> list[Scores]:
        """Scores per solution."""
        encoded = [self._engine.format.encode(asked.problem, asked.steps) for asked in batch]
        fitting = [k for k, own in enumerate(encoded) if len(own.ids) <= self._engine.description.max_tokens]
        scores: list[Scores] = [None] * len(batch)
        for k, values in zip(fitting, self._engine.score([encoded[k] for k in fitting]).scores, strict=True):
            scores[k] = values
        return scores


class ServerScorer:
    """Scores by a running server at `url`, with its API key if it has one.

    Raises `ModelUnavailable` if it does not answer, or refuses to.
    """

    def __init__(self, url: str, api_key: str | None = None) -> None:
        headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        transport = httpx.HTTPTransport(retries=2)
        self._client = httpx.Client(base_url=url, headers=headers, timeout=SECONDS, transport=transport)
        try:
            self._name = str(self._get("/model")["name"])
        except ModelUnavailable:
            self.close()
            raise

    @property
    def name(self) -> str:
        """The model's name."""
        return self._name

    def score(self, batch: Sequence[Asked]) -> list[Scores]:
        """Scores per solution, a request each."""
        with ThreadPoolExecutor(IN_FLIGHT) as pool:
            return list(pool.map(self._score, batch))

    def close(self) -> None:
        """Closes the connections."""
        self._client.close()

    def _score(self, asked: Asked) -> Scores:
        body = {"problem": asked.problem, "solutions": [list(asked.steps)]}
        response = self._send("POST", "/score_steps", body)
        if response.status_code == 422 and response.json()["code"] in ("solution_too_long", "too_many_steps"):
            return None
        self._check(response)
        return tuple(ScoreResponse.model_validate(response.json()).solutions[0].step_scores or ())

    def _get(self, path: str) -> dict[str, object]:
        response = self._send("GET", path)
        self._check(response)
        told: dict[str, object] = response.json()
        return told

    def _send(self, method: str, path: str, body: object = None) -> httpx.Response:
        try:
            return self._client.request(method, path, json=body)
        except httpx.HTTPError as error:
            raise ModelUnavailable(f"{self._client.base_url} does not answer: {error!r}") from error

    def _check(self, response: httpx.Response) -> None:
        if response.status_code != 200:
            detail = response.text[:200]
            raise ModelUnavailable(f"{response.request.url} answered {response.status_code}: {detail}")
