"""The form in which vLLM answers on several texts."""

import time
import uuid
from typing import Any, Self

from pydantic import BaseModel, Field

from ..context import Context


class ListResponse(BaseModel):
    """An entry for each text, in the order of the request."""

    id: str
    object: str = "list"
    created: int = Field(default_factory=lambda: int(time.time()))
    model: str
    data: list[dict[str, Any]]
    usage: dict[str, int]

    @classmethod
    def of(cls, kind: str, model: str, data: list[dict[str, Any]], context: Context) -> Self:
        """The answer to a request; `kind`: what its id begins with."""
        return cls(id=new_id(kind), model=model, data=data, usage=usage(context))


def new_id(kind: str) -> str:
    """An id that begins with `kind`."""
    return f"{kind}-{uuid.uuid4().hex}"


def usage(context: Context) -> dict[str, int]:
    """The tokens of a request so far."""
    return {"prompt_tokens": context.usage.tokens, "total_tokens": context.usage.tokens}
