"""An answer as server-sent events, in OpenAI's form."""

import json
import time
from collections.abc import Iterator
from dataclasses import asdict

from server.gateway.election import Elected, Progress
from unprm.openai_api import Json


def event(data: bytes | memoryview) -> bytes:
    """One event; `data` has no line breaks."""
    return b"data: " + bytes(data) + b"\n\n"


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

    def answer(self, elected: Elected, text: str, usage: bool) -> Iterator[bytes]:
        """The text line by line, the report with the last chunk, and the usage if requested."""
        yield self._chunk({"role": "assistant", "content": ""})
        for line in text.splitlines(keepends=True):
            yield self._chunk({"content": line})
        reason = elected.choice.get("finish_reason") or "stop"
        yield self._chunk({}, reason, unprm=elected.report.model_dump(mode="json"))
        if usage:
            yield _encoded(self._common | {"choices": [], "usage": elected.sampled.usage})
        yield event(b"[DONE]")

    def _chunk(self, delta: Json, reason: str | None = None, **more: Json) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": reason}
        return _encoded(self._common | {"choices": [choice]} | more)


def _encoded(chunk: Json) -> bytes:
    return event(json.dumps(chunk).encode())
