"""An answer as server-sent events, in OpenAI's form."""

import json
import time
from collections.abc import Iterator
from dataclasses import asdict

from unprm.openai_api import Json

from ..http.errors import event
from .candidates import text_of
from .election import Elected, Progress

_PARTS = 1000
"""Most parts that an answer is sent in: each costs the server time."""


class Chunks:
    """The events of one answer."""

    def __init__(self, name: str, model: str) -> None:
        self._common: Json = {
            "id": name,
            "object": "chat.completion.chunk",
            "created": int(time.time()),
            "model": model,
        }

    def progress(self, step: Progress) -> bytes:
        """An empty chunk of the answer, which reports progress."""
        return self._chunk({}, unprm={"progress": asdict(step)})

    def answer(self, elected: Elected, answers: int, usage: bool) -> Iterator[bytes]:
        """The texts of the best answers in parts, the report with the first one's last chunk, and the usage if
        requested."""
        for index, choice in enumerate(elected.choices[:answers]):
            yield self._chunk({"role": "assistant", "content": ""}, index=index)
            for part in _parts(text_of(choice)):
                yield self._chunk({"content": part}, index=index)
            reason = choice.get("finish_reason") or "stop"
            report = {} if index else {"unprm": elected.report.model_dump(mode="json")}
            yield self._chunk({}, reason, index, **report)
        if usage:
            yield _encoded(self._common | {"choices": [], "usage": elected.sampled.usage})
        yield event(b"[DONE]")

    def _chunk(self, delta: Json, reason: str | None = None, index: int = 0, **more: Json) -> bytes:
        choice = {"index": index, "delta": delta, "finish_reason": reason}
        return _encoded(self._common | {"choices": [choice]} | more)


def _parts(text: str) -> Iterator[str]:
    """The text line by line; a long one in at most `_PARTS` parts of as many lines."""
    lines = text.splitlines(keepends=True)
    size = -(-len(lines) // _PARTS)
    for start in range(0, len(lines), max(1, size)):
        yield "".join(lines[start : start + size])


def _encoded(chunk: Json) -> bytes:
    return event(json.dumps(chunk).encode())
