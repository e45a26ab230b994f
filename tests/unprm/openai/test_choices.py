"""Choices of servers that take fewer than are asked for, or know no `n`."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from unprm.openai.completion import Choices
from unprm.openai.errors import APIConnectionError, APIStatusError, ErrorFields
from unprm.openai.facts import FORGOTTEN_AFTER, Facts

Ask = Callable[[int, int], Awaitable[list[int]]]


def refusal(words: str, status: int = 400) -> APIStatusError:
    return APIStatusError("http://a", status, None, ErrorFields(words))


def server(seen: list[tuple[int, int]], slots: int, gives: int = 99) -> Ask:
    """Refuses more than `slots` choices, as llama.cpp does, and gives at most `gives` numbers of choices."""

    async def ask(first: int, count: int) -> list[int]:
        seen.append((first, count))
        if count > slots:
            raise refusal(f"Field 'n': Value must be between 1 <= value <= {slots}, but got {count}")
        return list(range(first, first + min(count, gives)))

    return ask


def gathered(choices: Choices, ask: Ask, count: int, limit: int | None = None) -> list[list[int]]:
    async def call(first: int, number: int) -> list[int]:
        return await ask(first, number)

    parts = asyncio.run(choices.gather(call, count, limit))
    assert all(isinstance(part, list) for part in parts)
    return parts  # type: ignore[return-value]


def test_what_a_server_refuses_is_asked_for_in_parts_and_that_is_remembered() -> None:
    seen: list[tuple[int, int]] = []
    choices = Choices(Facts())
    for _ in range(2):
        assert gathered(choices, server(seen, slots=5), 10) == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]]
        assert seen == [(0, 10), (0, 5), (5, 5)]
        seen.clear()
    assert gathered(choices, server(seen, slots=5), 7) == [[0, 1, 2, 3, 4], [5, 6]]
    assert seen == [(0, 5), (5, 2)]


def test_parts_that_are_refused_together_are_halved_together() -> None:
    seen: list[tuple[int, int]] = []
    assert gathered(Choices(Facts()), server(seen, slots=1), 8, limit=4) == [[number] for number in range(8)]
    assert seen == [(0, 4), (4, 4), *((first, 2) for first in range(0, 8, 2)), *((first, 1) for first in range(8))]


def test_what_a_server_leaves_out_is_asked_for_and_that_is_remembered() -> None:
    seen: list[tuple[int, int]] = []
    choices = Choices(Facts())
    for expected in (*[[(0, 3), (1, 1), (2, 1)]] * 2, [(0, 1), (1, 1), (2, 1)]):
        assert gathered(choices, server(seen, slots=9, gives=1), 3) == [[0], [1], [2]]
        assert seen == expected
        seen.clear()
    assert gathered(Choices(Facts()), server(seen, slots=9, gives=0), 2) == [[], [], []]


def test_one_short_answer_is_no_limit_and_a_limit_is_forgotten_after_a_while() -> None:
    seen: list[tuple[int, int]] = []
    clock = [0.0]
    choices = Choices(Facts(lambda: clock[0]))
    for gives in (1, 9, 1, 9):  # as a router before servers of two kinds
        gathered(choices, server(seen, slots=9, gives=gives), 3)
    assert [asked for asked in seen if asked[0] == 0] == [(0, 3)] * 4
    for _ in range(2):
        gathered(choices, server(seen, slots=1), 3)
    seen.clear()
    for clock[0] in (0.9 * FORGOTTEN_AFTER, FORGOTTEN_AFTER):
        gathered(choices, server(seen, slots=9), 3)
    assert seen == [(0, 1), (1, 1), (2, 1), (0, 3)]


def test_a_limit_of_one_call_is_not_that_of_the_next() -> None:
    seen: list[tuple[int, int]] = []
    choices = Choices(Facts())
    gathered(choices, server(seen, slots=9), 2, limit=1)
    gathered(choices, server(seen, slots=9), 2)
    assert seen == [(0, 1), (1, 1), (0, 2)]


@pytest.mark.parametrize(
    "error",
    [refusal("the prompt is too long"), refusal("no n", status=500), APIConnectionError("http://a", "ReadTimeout")],
)
def test_another_error_is_no_reason_to_ask_again(error: Exception) -> None:
    calls = []

    async def fail(first: int, count: int) -> list[int]:
        calls.append(count)
        raise error

    assert asyncio.run(Choices(Facts()).gather(fail, 4)) == [error]
    assert calls == [4]


def test_what_is_refused_in_any_number_is_no_limit_to_remember() -> None:
    calls = []

    async def refuse(first: int, count: int) -> list[int]:
        calls.append(count)
        raise refusal("n, and whatever else was sent")

    choices = Choices(Facts())
    for _ in range(2):
        assert len(asyncio.run(choices.gather(refuse, 2))) == 2
    assert calls == [2, 1, 1, 2, 1, 1]
