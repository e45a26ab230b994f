"""How long a request may be worked on."""

import asyncio
from types import TracebackType
from typing import Self


class Lifetime:
    """A block that is cancelled at `deadline`, a time of the event loop's clock, and then raises `late`; or earlier, by
    `end`."""

    def __init__(self, deadline: float, late: Exception) -> None:
        self._timeout = asyncio.timeout_at(deadline)
        self._reason = late

    async def __aenter__(self) -> Self:
        await self._timeout.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self._timeout.__aexit__(kind, error, trace)
        except TimeoutError:
            raise self._reason from None

    @property
    def over(self) -> bool:
        """Whether the block is cancelled, if only just now."""
        return self._timeout.expired()

    def end(self, reason: Exception) -> None:
        """Cancels the block, which then raises `reason`, unless it is over or lasts."""
        if self._timeout.when() is not None and not self.over:
            self._reason = reason
            self._timeout.reschedule(asyncio.get_running_loop().time())

    def last(self) -> None:
        """Leaves the block as much time as it takes."""
        self._timeout.reschedule(None)
