"""The served models, and how one is loaded, swapped or unloaded without a request being lost."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

from unprm.errors import InvalidRequest, NoModel, UnknownModel
from unprm.wire import ModelState

from ..observe import Metrics
from ..settings import CHECKS, Settings
from .model import EngineOrLoader, Model


class Models:
    """The models of a server by name, the default first, and those that are being loaded beside them."""

    def __init__(
        self,
        sources: EngineOrLoader | Mapping[str, EngineOrLoader],
        settings: Settings,
        metrics: Metrics,
        lost: Callable[[], None],
        clock: Callable[[], float],
    ) -> None:
        self._model = partial(Model, settings=settings, metrics=metrics, lost=lost, clock=clock)
        named = sources if isinstance(sources, Mapping) else {"": sources}
        self._served = [self._model(source, name=name) for name, source in named.items()]
        self._coming: dict[str, Model] = {}
        self._leaving: set[Model] = set()
        self._changes: set[asyncio.Task[None]] = set()

    def __iter__(self) -> Iterator[Model]:
        return iter(self._served)

    @property
    def names(self) -> list[str]:
        """The names that requests may use, the default first."""
        return [model.name for model in self._served]

    @contextmanager
    def chosen(self, requested: str | Sequence[str] | None, least: int = 1) -> Iterator[list[Model]]:
        """The models that a request names, by default the first, kept from being retired inside the block. Raises
        `UnknownModel`; `NoModel` if none is served and the request needs `least` one."""
        names = [requested] if isinstance(requested, str) else requested
        if names == [CHECKS] and not self._served:
            names = None
        models = self._served[:1] if names is None else [self._named(name) for name in names]
        if len(models) < least:
            raise NoModel
        with ExitStack() as stack:
            for model in models:
                stack.enter_context(model.use)
            yield models

    def states(self) -> list[ModelState]:
        """States of the served models, the default first, then of models that are loading or failed to load. A model
        that is loaded is ready once requests find it."""
        coming = [model.state for model in self._coming.values()]
        for state in coming:
            if state.state == "ready":
                state.state = "loading"
        return [*(model.state for model in self._served), *coming]

    def start(self) -> None:
        for model in self._served:
            model.start()

    async def loaded(self) -> bool:
        """Waits until the models given at the start have ended loading; returns whether all succeeded."""
        return all(await asyncio.gather(*(model.loaded() for model in self._served)))

    def load(self, name: str, source: EngineOrLoader) -> None:
        """Loads a model beside the others, then serves it, replacing the one of the same name if there is one."""
        if (earlier := self._coming.get(name)) is not None:
            self._leave(earlier)
        self._coming[name] = self._model(source, name=name)
        self._coming[name].start()
        self._change(self._take_over(name, self._coming[name]))

    def unload(self, name: str) -> None:
        """Stops serving a model; raises `UnknownModel`, and `InvalidRequest` if it is the only one."""
        if (coming := self._coming.pop(name, None)) is not None:
            self._leave(coming)
            return
        model = self._named(name)
        if len(self._served) == 1:
            raise InvalidRequest("the only model can't be unloaded; load another one in its place")
        self._served.remove(model)
        self._leave(model)

    async def stop(self) -> None:
        """Fails queued work with `ShuttingDown`, closes all engines."""
        models = [*self._served, *self._coming.values(), *self._leaving]
        await asyncio.gather(*(model.stop(0) for model in models))
        for change in self._changes:
            change.cancel()
        await asyncio.gather(*self._changes, return_exceptions=True)

    async def _take_over(self, name: str, model: Model) -> None:
        if not await model.loaded() or self._coming.get(name) is not model:
            return
        del self._coming[name]
        for place, served in enumerate(self._served):
            if served.name == name:
                self._served[place] = model
                self._leave(served)
                return
        self._served.append(model)

    def _named(self, name: str) -> Model:
        for model in self._served:
            if model.name == name:
                return model
        raise UnknownModel(self.names)

    def _leave(self, model: Model) -> None:
        """Retires a model that is no longer served, or never was."""
        self._leaving.add(model)

        async def retire() -> None:
            await model.retire()
            self._leaving.discard(model)

        self._change(retire())

    def _change(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._changes.add(task)
        task.add_done_callback(self._changes.discard)
