"""Calls that run together."""

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any, TypeVar

Value = TypeVar("Value")


async def all_of(calls: Iterable[Coroutine[Any, Any, Value]]) -> list[Value]:
    """The results of all calls; if one fails, the others are cancelled and its error is raised."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(call) for call in calls]
    except ExceptionGroup as several:
        raise several.exceptions[0] from None
    return [task.result() for task in tasks]


async def settled(calls: Iterable[Coroutine[Any, Any, Value]]) -> list[Value | Exception]:
    """What each call returns or raises. Cancels them once, unlike `asyncio.gather`, which passes on each of AnyIO's
    repeated cancellations, so that a call could not close its connection."""

    async def outcome(call: Coroutine[Any, Any, Value]) -> Value | Exception:
        try:
            return await call
        except Exception as error:  # the caller says what becomes of it
            return error

    return await all_of(map(outcome, calls))
