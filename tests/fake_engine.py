"""A model without weights: deterministic scores, and broken ones where a test asks for them."""

import hashlib
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar

from unprm.calibration import Calibration
from unprm.engines.judge.engine import TAG, JudgeFormat, texts
from unprm.engines.judge.layouts import verdicts
from unprm.engines.judge.methods import Stepwise
from unprm.types import Encoded, ModelDescription, Prompt, StepScores, StepTag

_SPAN = 2**32


class _Unasked(Stepwise):
    def prompt_tokens(self, problem: str, steps: Sequence[str]) -> int:
        return 0


class FakeFormat(JudgeFormat):
    """The texts' bytes, which no judge is asked about; the text shows `ş` for each tag."""

    family = "fake"
    tag = StepTag(TAG, "ş")

    _methods: ClassVar = {None: _Unasked(verdicts(), 1, 1)}

    def __init__(self) -> None:
        pass

    def tokenize(self, prompt: Prompt) -> tuple[int, ...]:
        """As `Format`; `ş` is the tag."""
        if not isinstance(prompt.content, str):
            return prompt.content
        first, *others = prompt.content.split("ş")
        return (*first.encode(), *(token for part in others for token in (TAG, *part.encode())))

    def at_tags(self, ids: Sequence[int]) -> Encoded:
        kept = (*ids,) if TAG in ids else (*ids, TAG)
        return Encoded(kept, tuple(place for place, token in enumerate(kept) if token == TAG))

    def text(self, encoded: Encoded) -> str:
        """The text that the ids encode, with `ş` for each tag."""
        problem, steps = texts(encoded)
        return f"{problem}\n" + "".join(f"{step}ş" for step in steps)


class FakeEngine:
    """An engine whose score at a position is a hash of the ids up to it, strictly between 0 and 1.

    `scores` replaces the hash and may return what a broken engine would; `delay` is in seconds per batch;
    `failures` maps the number of a call, from 0, to the exception it raises; every call waits until `gate` is set.
    `batches` lists the batch of every call, recorded before it waits or fails.
    """

    def __init__(
        self,
        *,
        scores: Callable[[Encoded], Sequence[float]] | None = None,
        delay: float = 0.0,
        failures: Mapping[int, BaseException] | None = None,
        gate: threading.Event | None = None,
        max_tokens: int = 8192,
        demo: bool = False,
        name: str = "fake",
        calibration: Calibration | None = None,
        digest: str | None = "fake",
    ) -> None:
        self.format = FakeFormat()
        self.description = ModelDescription(
            name=name,
            family=FakeFormat.family,
            engine="fake",
            device="cpu",
            dtype="float32",
            max_tokens=max_tokens,
            input_format="{problem}\\n{step 1}ş{step 2}ş… (bytes; scored at each ş)",
            calibration=calibration or Calibration(),
            demo=demo,
            digest=digest,
        )
        self.batches: list[tuple[Encoded, ...]] = []
        self.closed = False
        self._scores = scores or hashed
        self._delay = delay
        self._failures = failures or {}
        self._gate = gate

    def score(self, batch: Sequence[Encoded]) -> list[StepScores]:
        """Step scores per item, independent of the rest of the batch."""
        call = len(self.batches)
        self.batches.append(tuple(batch))
        if self._gate is not None:
            self._gate.wait()
        time.sleep(self._delay)
        if call in self._failures:
            raise self._failures[call]
        return [StepScores(tuple(self._scores(item)), len(item.ids), len(item.ids)) for item in batch]

    def close(self) -> None:
        """Sets `closed`."""
        self.closed = True


def hashed(encoded: Encoded) -> tuple[float, ...]:
    """A score in (0, 1) for each position, from the ids up to and including it."""
    digest, start, scores = hashlib.sha256(), 0, []
    for position in encoded.positions:
        part = encoded.ids[start : position + 1]
        digest.update(b"".join(token.to_bytes(4, "big") for token in part))
        start = position + 1
        scores.append((int.from_bytes(digest.digest()[:4], "big") + 0.5) / _SPAN)
    return tuple(scores)
