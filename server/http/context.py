"""State of a request while it is handled."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, cast

from fastapi import Depends, Request
from starlette.types import Scope

from unprm.types import Usage

CONTEXT = "unprm.context"
"""Key of the context in a request's scope."""


@dataclass(slots=True)
class Context:
    """One request. `arrived` and `deadline`, `seconds` later, are times of the event loop's clock; `caller`: the name
    of the key that was sent; `share`: whose share of the server's capacity and threads it uses; `code`: the error's,
    if the response is an error; `size`: bytes of the texts to be read for it, which are its body and, in the gateway,
    what the upstream answers; `hold` takes memory of the caller's share until the request ends, see `Budget`."""

    request_id: str
    arrived: float
    deadline: float | None = None
    seconds: float = 0.0
    caller: str = ""
    share: str = ""
    body: bytes = b""
    size: int = 0
    hold: Callable[[int], None] = lambda _: None
    solutions: int = 0
    usage: Usage = field(default_factory=Usage)
    code: str = ""


def context_of(scope: Scope) -> Context:
    """The context stored in a request's scope."""
    return cast(Context, scope[CONTEXT])


async def _context(request: Request) -> Context:  # async: FastAPI would otherwise call it in a thread
    return context_of(request.scope)


TheContext = Annotated[Context, Depends(_context)]
"""The request's context, as a parameter of an endpoint."""
