"""Python clients of an unprm server: `Client` and `AsyncClient`, typed results, an exception for every error."""

from unprm.wire import (
    CompareResponse,
    GradeResponse,
    ModelResponse,
    ScoreResponse,
    SolutionIn,
    VoteResponse,
)
from unprm_client._client import AsyncClient, Client
from unprm_client.errors import ClientError, DeadlineExceeded

__all__ = [
    "AsyncClient",
    "Client",
    "ClientError",
    "CompareResponse",
    "DeadlineExceeded",
    "GradeResponse",
    "ModelResponse",
    "ScoreResponse",
    "SolutionIn",
    "VoteResponse",
]
