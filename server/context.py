"""What is known of a request while it is answered."""

from dataclasses import dataclass, field
from typing import cast

from starlette.types import Scope

from unprm.types import Usage

_KEY = "unprm.context"


@dataclass(slots=True)
class Context:
    """One request. `arrived` and `deadline`, `seconds` later, are times of the event loop's clock; `caller`: the name
    that goes with the key that was sent; `share`: whose share of the server's room and threads it counts for; `code`:
    the error's, if it is answered with one."""

    request_id: str
    arrived: float
    deadline: float | None = None
    seconds: float = 0.0
    caller: str = ""
    share: str = ""
    body: bytes = b""
    solutions: int = 0
    usage: Usage = field(default_factory=Usage)
    code: str = ""


def attach(scope: Scope, context: Context) -> None:
    """Makes the context the request's."""
    scope[_KEY] = context


def context_of(scope: Scope) -> Context:
    """The context of the request that this is the scope of."""
    return cast(Context, scope[_KEY])
