"""Runs an engine's batches in a thread, checks what it answers, and finds out when its model is lost."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial

from unprm.engines.worker import Worker
from unprm.errors import ModelUnavailable, ModelUnreachable
from unprm.types import BatchScores, Encoded, Engine

logger = logging.getLogger(__name__)

_FAILURES = 3
"""Failed batches in a row after which the model is tested."""
_CLOSING = 5.0
"""Seconds that an engine may take to free its memory."""


class Runner:
    """Runs one batch after the other. `patience`: seconds that a batch may take.

    A model that hangs, or that fails on every input, is lost: `lost` then says why, and `on_loss` is called once.
    """

    def __init__(self, engine: Engine, patience: float, on_loss: Callable[[], None]) -> None:
        self.lost: str | None = None
        self._engine = engine
        self._patience = patience
        self._on_loss = on_loss
        self._failures = 0
        self._worker = Worker("engine")

    async def run(self, batch: Sequence[Encoded]) -> BatchScores:
        """The engine's scores, checked to be usable; raises `ModelUnavailable`."""
        try:
            async with asyncio.timeout(self._patience):
                scores = await self._worker.run(partial(_scores, self._engine, batch))
        except TimeoutError:
            reason = f"the model did not answer within {self._patience:g} s"
            self._lose(reason)
            raise ModelUnavailable(reason) from None
        except ModelUnreachable:  # which is no fault of the model's
            raise
        except ModelUnavailable:
            self._failures += 1
            raise
        self._failures = 0
        return scores

    async def test_after_failures(self) -> None:
        """After several failed batches in a row, tests whether the model is at fault."""
        failures = self._failures
        if failures < _FAILURES or self.lost is not None:
            return
        try:
            await self.run([plain_sum(self._engine)])
        except ModelUnavailable:
            self._lose(f"the model failed {failures} times in a row, then on a plain sum")

    async def close(self) -> None:
        """Closes the engine. If a batch still runs, it is not waited for: the engine closes after it."""
        patience = 0.0 if self._worker.busy else _CLOSING
        closing = asyncio.create_task(self._worker.run(self._engine.close))
        await asyncio.wait({closing}, timeout=patience)
        closing.cancel()
        self._worker.close()

    def _lose(self, reason: str) -> None:
        if self.lost is None:
            logger.critical("the model is lost: %s", reason)
            self.lost = f"the model is lost: {reason}"
            self._on_loss()


def plain_sum(engine: Engine) -> Encoded:
    """What any model can score."""
    return engine.format.encode("1 + 1 = ?", ["2"])


def _scores(engine: Engine, batch: Sequence[Encoded]) -> BatchScores:
    """Runs in the engine's thread."""
    try:
        scores = engine.score(batch)
        fault = _fault(batch, scores)
    except ModelUnreachable as error:
        logger.warning("a batch of %d items failed: %s", len(batch), error)
        raise
    except BaseException as error:  # a library may raise anything: every caller gets an error
        logger.exception("the model failed on a batch of %d items", len(batch))
        raise ModelUnavailable(f"the model failed on this request ({type(error).__name__})") from error
    if fault is not None:
        logger.error("the model answered a batch of %d items wrongly: %s", len(batch), fault)
        raise ModelUnavailable(f"the model's answer can't be used: {fault}")
    return scores


def _fault(batch: Sequence[Encoded], answer: BatchScores) -> str | None:
    scores, optional = answer.scores, (answer.tokens, answer.unread)
    lengths = {len(values) for values in (batch, scores, answer.computed, *optional) if values is not None}
    if len(lengths) != 1:
        return f"it has scores for {len(scores)} of {len(batch)} items"
    for item, values in zip(batch, scores, strict=True):
        if len(values) != len(item.positions):
            return f"an item has {len(values)} scores for {len(item.positions)} steps"
        if not all(0.0 <= value <= 1.0 for value in values):  # false for NaN, too
            return "a score is not within 0 and 1"
    return None
