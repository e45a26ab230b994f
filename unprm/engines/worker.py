"""A thread for blocking calls that an event loop awaits, and the calls that an engine gets there."""

import asyncio
import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any, TypeVar

from unprm.errors import ModelUnavailable, ModelUnreachable
from unprm.types import Encoded, Engine, StepScores

logger = logging.getLogger(__name__)

T = TypeVar("T")


class Worker:
    """One daemon thread that runs calls in order; a call that hangs does not keep the process from ending."""

    def __init__(self, name: str) -> None:
        self._calls: SimpleQueue[tuple[Callable[[], Any], Future[Any]] | None] = SimpleQueue()
        self._last: Future[Any] | None = None
        threading.Thread(target=self._work, name=name, daemon=True).start()

    @property
    def busy(self) -> bool:
        """Whether a call runs or waits, including one whose caller has left."""
        return self._last is not None and not self._last.done()

    async def call(self, function: Callable[[], T]) -> T:
        """The function's result, or what it raised. Cancelling the caller stops no call, also none that waits."""
        future: Future[T] = Future()
        future.set_running_or_notify_cancel()  # from here on it can't be cancelled
        self._last = future
        self._calls.put((function, future))
        return await asyncio.wrap_future(future)

    def close(self) -> None:
        """Ends the thread after the waiting calls."""
        self._calls.put(None)

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            function, future = call
            try:
                future.set_result(function())
            except StopIteration as error:  # asyncio's futures refuse it, and their caller would wait for ever
                future.set_exception(RuntimeError(repr(error)))
            except BaseException as error:  # even a library's SystemExit must not end the thread
                future.set_exception(error)
            del call, function, future  # frees what they hold: the next call may come much later


def plain_sum(engine: Engine) -> Encoded:
    """What any model can score."""
    return engine.format.encode("1 + 1 = ?", ["2"])


def checked_scores(engine: Engine, batch: Sequence[Encoded]) -> list[StepScores]:
    """Runs in the engine's thread. Raises `ModelUnavailable`, also for what are no scores."""
    try:
        answer = engine.score(batch)
        counts = [(len(scores.values), len(item.positions)) for item, scores in zip(batch, answer, strict=False)]
        within = all(0.0 <= value <= 1.0 for scores in answer for value in scores.values)  # false for NaN, too
    except ModelUnreachable as error:
        logger.warning("a batch of %d items failed: %s", len(batch), error)
        raise
    except BaseException as error:  # a library may raise anything: every caller gets an error
        logger.exception("the model failed on a batch of %d items", len(batch))
        raise ModelUnavailable(f"the model failed on this request ({type(error).__name__})") from error
    wrong = next((f"an item has {count} scores for {steps} steps" for count, steps in counts if count != steps), None)
    if len(answer) != len(batch):
        wrong = f"it has scores for {len(answer)} of {len(batch)} items"
    elif wrong is None and not within:
        wrong = "a score is not within 0 and 1"
    if wrong is not None:
        logger.error("the model answered a batch of %d items wrongly: %s", len(batch), wrong)
        raise ModelUnavailable(f"the model's answer can't be used: {wrong}")
    return answer
