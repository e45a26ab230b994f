"""Calls that run together."""

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any, TypeVar

Value = TypeVar("Value")


async def all_of(calls: Iterable[Coroutine[Any, Any, Value]]) -> list[Value]:
    """The results of all calls; if one fails, the others are cancelled and its error is raised."""
    calls = list(calls)
    if len(calls) == 1:  # as for one model: a task would be another turn of the event loop
        return [await calls[0]]
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(call) for call in calls]
    except ExceptionGroup as several:
        raise several.exceptions[0] from None
    return [task.result() for task in tasks]


async def first_of(call: Coroutine[Any, Any, Any], other: Coroutine[Any, Any, Any]) -> bool:
    """Runs both calls; True if `call` finished first. Cancels the loser, and raises the error of the winner."""
    tasks = [asyncio.ensure_future(call), asyncio.ensure_future(other)]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        ended = [task for task in tasks if task.done()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    ended[0].result()
    return ended[0] is tasks[0]


async def gather_outcomes(calls: Iterable[Coroutine[Any, Any, Value]]) -> list[Value | Exception]:
    """The result or error of every call. Cancels each once, where `asyncio.gather` would pass on AnyIO's repeated
    cancellations, and calls could not close their connections."""

    async def outcome(call: Coroutine[Any, Any, Value]) -> Value | Exception:
        try:
            return await call
        except Exception as error:  # the caller says what becomes of it
            return error

    return await all_of(map(outcome, calls))
