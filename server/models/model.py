"""A served model and its states: loading in a thread of its own, then ready, or failed for good."""

import asyncio
import gc
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Literal

from unprm.engines.model_queue import ModelQueue, Worker
from unprm.errors import ModelInvalid, ModelUnavailable
from unprm.fair_shares import Capacity, Reservation
from unprm.models.options import LoadModelRequest, public_name
from unprm.types import Engine
from unprm.wire import ModelState

from ..lease import UseCount
from ..observe import Metrics
from ..settings import Settings

logger = logging.getLogger(__name__)

_LOADING = "the model is being loaded"
_FAILED = "the model could not be loaded; the server's log says why"
_DENSITY = 0.25
"""Tokens per character, assumed until measured."""
_NEWEST = 0.1
"""Weight of the newest request in the measured tokens per character."""
_BODIES = 2
"""Texts that are being encoded may total the characters of this many maximum-size bodies."""


EngineOrLoader = Engine | Callable[[], Engine]
"""A loaded engine, or a function that loads one."""
LoadModel = Callable[[LoadModelRequest], Engine]
"""Loads a model; blocking."""


class Model:
    """An engine and its queue, which exist once it is loaded. Owns the engine: `stop` closes it.

    `lost` is called when it hangs or fails for good; `clock`: in seconds, by which a request's parts are timed.
    """

    PIECE = 65_536
    """Characters that are encoded in a turn; a longer solution gets a turn of its own."""

    def __init__(
        self,
        source: EngineOrLoader,
        settings: Settings,
        metrics: Metrics,
        lost: Callable[[], None],
        clock: Callable[[], float],
        name: str,
    ) -> None:
        self._source, self._settings, self._metrics = source, settings, metrics
        self._lost, self.clock, self._given_name = lost, clock, name
        self._max_encoded = _BODIES * settings.max_body_bytes
        self._encoded = Capacity(self._max_encoded, "characters")
        self.use = UseCount()
        """Keeps the model from being retired inside a block `with model.use`."""
        self._reason = self._detail = _LOADING
        self._queue: ModelQueue | None = None
        self._loading: asyncio.Task[None] | None = None
        self._density = _DENSITY

    @property
    def queue(self) -> ModelQueue:
        """Raises `ModelUnavailable` until it is loaded."""
        if self._queue is None:
            raise ModelUnavailable(self._reason)
        return self._queue

    @property
    def engine(self) -> Engine:
        """Raises `ModelUnavailable` until it is loaded."""
        return self.queue.engine

    @property
    def is_ready(self) -> bool:
        """Whether it is loaded."""
        return self._queue is not None

    @property
    def name(self) -> str:
        """The given name; without one, the engine's own or, until it is loaded, that of the settings."""
        if self._given_name:
            return self._given_name
        return public_name(self._settings.model[0]) if self._queue is None else self.engine.description.name

    @property
    def state(self) -> ModelState:
        """The state that `/admin/models` reports."""
        if self._queue is not None:
            about = self.engine.description
            return ModelState(name=self.name, state="ready", base=about.base, adapter=about.adapter)
        state: Literal["loading", "failed"] = "loading" if self._reason == _LOADING else "failed"
        return ModelState(name=self.name, state=state, detail=self._detail)

    @property
    def load(self) -> tuple[int, int, float]:
        """Tokens, and requests, that wait for the model, and the fraction of the prefix cache that is in use, 0 without
        one."""
        if self._queue is None:
            return 0, 0, 0.0
        return *self._queue.waiting, getattr(self.engine, "cache_used", 0.0)

    def reserve(self, lengths: Sequence[int], caller: str) -> Reservation:
        """Takes room in the queue for a caller's solutions of these lengths (characters, with the problem), by an
        estimate of their tokens, until they are queued, or the block ends. Raises `Overloaded` if there is none."""
        limit = self.engine.description.max_tokens  # what is longer than the model's window is never run
        tokens = sum(min(limit, max(1, round(self._density * length))) for length in lengths)
        return self.queue.reserve(tokens, caller)

    @contextmanager
    def encoding(self, lengths: Sequence[int], caller: str) -> Iterator[None]:
        """Takes room for encoding solutions of these lengths until the end of the block; raises `Overloaded` if too
        much is being encoded for this caller."""
        longest = self.engine.description.max_tokens * self.engine.format.longest_token
        characters = sum(length for length in lengths if length <= longest)  # longer ones are not encoded
        with Reservation(self._encoded, caller) as texts:
            # what takes a single turn is always accepted: a caller's long texts must not keep out its short ones
            if characters > self.PIECE:
                texts.take(min(characters, self._max_encoded // 4))  # so that even the longest request is accepted
            yield

    def note_density(self, characters: int, tokens: int) -> None:
        """Updates the measured tokens per character with those of a request."""
        if characters:
            self._density += _NEWEST * (tokens / characters - self._density)

    async def loaded(self) -> bool:
        """Waits until loading ends; returns whether it succeeded."""
        if self._loading is not None:
            await asyncio.wait({self._loading})
        return self._queue is not None

    async def retire(self) -> None:
        """Stops the model once loading, which can't be interrupted, has ended and no request uses it."""
        await self.loaded()
        await self.use.ended.wait()
        await self.stop(self._settings.max_drain_seconds)
        self._queue = None
        gc.unfreeze()
        await asyncio.to_thread(_settle)

    def start(self) -> None:
        """Starts loading; an already loaded engine is ready at once."""
        if callable(self._source):
            self._loading = asyncio.create_task(self._load(self._source))
        else:
            self._ready(self._source)

    async def stop(self, seconds: float) -> None:
        """Finishes queued work within this time, fails the rest with `ShuttingDown`, closes the engine."""
        if self._loading is not None:
            self._loading.cancel()
            with suppress(asyncio.CancelledError):
                await self._loading
        if self._queue is not None:
            await self._queue.drain(seconds)

    async def _load(self, source: Callable[[], Engine]) -> None:
        loader = Worker("loader")
        try:
            engine = await loader.call(source)
            await loader.call(_settle)
            self._ready(engine)
        except ModelInvalid as error:
            self._reason, self._detail = _FAILED, str(error)
        except Exception as error:  # its message has no caller's text: nothing was served yet
            self._reason = self._detail = _FAILED
            logger.exception("the model could not be loaded: %s: %s", type(error).__name__, error)
        finally:
            loader.close()

    def _ready(self, engine: Engine) -> None:
        self._queue = ModelQueue(
            engine,
            batch_tokens=self._settings.batch_tokens,
            max_queued_tokens=self._settings.max_queued_tokens,
            patience=self._settings.max_batch_seconds,
            observe=partial(self._metrics.count_batch, self.name),
            on_loss=self._lost,
            clock=self.clock,
        )
        about = engine.description
        logger.info("serving %s (%s, %s on %s)", about.name, about.family, about.dtype, about.device)
        if about.demo:
            logger.warning(
                "%s is a demonstration model: its scores mean something for its own kind of word problem only. A real "
                "verifier: --model Qwen/Qwen2.5-Math-PRM-7B (a GPU of 24 GB), or --model judge --judge-url URL",
                about.name,
            )


def _settle() -> None:
    """Exempts long-lived objects, above all a model's many, from garbage collection: it would scan them again and again
    while every request waits."""
    gc.collect()
    gc.freeze()
