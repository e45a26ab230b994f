"""An answer as server-sent events, in OpenAI's form."""

import json
import time
from collections.abc import Iterator
from dataclasses import asdict

from unprm.openai_api import Json

from ..http.errors import event
from .candidates import text_of
from .election import Elected, Progress


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
        """The texts of the best answers line by line, the report with the first one's last chunk, and the usage if
        requested."""
        for index, choice in enumerate(elected.choices[:answers]):
            yield self._chunk({"role": "assistant", "content": ""}, index=index)
            for line in text_of(choice).splitlines(keepends=True):
                yield self._chunk({"content": line}, index=index)
            reason = choice.get("finish_reason") or "stop"
            report = {} if index else {"unprm": elected.report.model_dump(mode="json")}
            yield self._chunk({}, reason, index, **report)
        if usage:
            yield _encoded(self._common | {"choices": [], "usage": elected.sampled.usage})
        yield event(b"[DONE]")

    def _chunk(self, delta: Json, reason: str | None = None, index: int = 0, **more: Json) -> bytes:
        choice = {"index": index, "delta": delta, "finish_reason": reason}
        return _encoded(self._common | {"choices": [choice]} | more)


def _encoded(chunk: Json) -> bytes:
    return event(json.dumps(chunk).encode())
