"""State of a request while it is handled."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, cast

from fastapi import Depends, Request
from starlette.types import Scope

from unprm.types import Usage

from ..sharing import Quota

CONTEXT = "unprm.context"
"""Key of the context in a request's scope."""


@dataclass(slots=True)
class Context:
    """One request. `arrived` and `deadline`, `seconds` later, are times of the event loop's clock; `caller`: the name
    of the key that was sent; `share`: whose share of the server's capacity and threads it uses; `scope`: whose caches;
    `quota`: its caller's tokens, if they are limited; `code`: the error's, if the response is an error, for the log and
    the metrics; `hurried`: whether the caller wants the answer much sooner than the server's limit; `size`: bytes of
    the texts to be read for it, which are its body and, in the gateway, what the upstream answers; `hold` takes memory
    of the caller's share until the request ends, see `Budget`."""

    request_id: str
    arrived: float
    deadline: float | None = None
    seconds: float = 0.0
    hurried: bool = False
    caller: str = ""
    share: str = ""
    quota: Quota | None = None
    scope: str = ""
    body: bytes = b""
    size: int = 0
    hold: Callable[[int], None] = lambda _: None
    solutions: int = 0
    usage: Usage = field(default_factory=Usage)
    code: str = ""

    def charge(self, tokens: int) -> None:
        """Takes tokens from the caller's quota, or gives back a negative number of them."""
        if self.quota is not None:
            self.quota.charge(tokens)


def context_of(scope: Scope) -> Context:
    """The context stored in a request's scope."""
    return cast(Context, scope[CONTEXT])


async def _context(request: Request) -> Context:  # async: FastAPI would otherwise call it in a thread
    return context_of(request.scope)


TheContext = Annotated[Context, Depends(_context)]
"""The request's context, as a parameter of an endpoint."""
