"""State of a request while it is handled."""

from dataclasses import dataclass, field
from typing import Annotated, cast

from fastapi import Depends, Request
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import Scope

from unprm.types import Usage

from .admission import Claims
from .http.errors import BodyTooSlow, UnknownVote, code_of, problem

CONTEXT = "unprm.context"
"""Key of the context in a request's scope."""
GATEWAY = "/v1/"
"""Prefix of the paths of OpenAI's API."""
VOTES = "/vote/"
"""Prefix of the paths of votes."""
CALLER_DEADLINE = "caller_deadline"
"""Code in logs and metrics of a `deadline_exceeded` for which the caller gave too little time, or sent its body too
slowly: the server has not failed."""


@dataclass(slots=True)
class Context:
    """One request. `arrived`: a time of the event loop's clock; `claims`: what it may use and holds; `caller`: the name
    of the key that was sent; `scope`: whose caches it uses; `code`: the error's, if the response is an error, for the
    log and the metrics; `size`: bytes of the texts to be read for it, which are its body and, in the gateway, what the
    upstream answers."""

    request_id: str
    arrived: float
    claims: Claims
    caller: str = ""
    scope: str = ""
    body: bytes = b""
    size: int = 0
    solutions: int = 0
    usage: Usage = field(default_factory=Usage)
    code: str = ""

    def note(self, error: Exception) -> None:
        """Notes an error's code, or `CALLER_DEADLINE`."""
        code = code_of(error)
        by_caller = isinstance(error, BodyTooSlow) or self.claims.hurried
        self.code = CALLER_DEADLINE if code == "deadline_exceeded" and by_caller else code


def context_of(scope: Scope) -> Context:
    """The context stored in a request's scope."""
    return cast(Context, scope[CONTEXT])


async def _context(request: Request) -> Context:  # async: FastAPI would otherwise call it in a thread
    return context_of(request.scope)


TheContext = Annotated[Context, Depends(_context)]
"""The request's context, as a parameter of an endpoint."""


def respond(error: Exception, scope: Scope) -> Response:
    """The response to an error of a request; its code is noted in the request's context."""
    if isinstance(error, HTTPException) and error.status_code == 404 and scope["path"].startswith(VOTES):
        error = UnknownVote()
    context = context_of(scope)
    context.note(error)
    return problem(error, context.request_id, scope["path"].startswith(GATEWAY))
