"""A language model behind OpenAI's chat API as a verifier of steps."""

import asyncio
import logging
from collections.abc import Coroutine, Sequence
from contextvars import copy_context
from typing import Any, TypeVar

from unprm.engines.judge.chat import JudgeChat
from unprm.engines.judge.layouts import shown
from unprm.engines.judge.methods import Inquiry, JudgeMethods
from unprm.errors import InvalidRequest, ModelUnreachable
from unprm.task_groups import all_of
from unprm.types import Encoded, ModelDescription, Prompt, StepScores, StepTag

logger = logging.getLogger(__name__)

Result = TypeVar("Result")
TAG = 256
"""The id that ends a step; ids below it are bytes of UTF-8."""


class JudgeFormat:
    r"""Ids are the bytes of `problem + "\\n"` and of each step, with a tag after each step, so texts come back
    exactly."""

    family = "judge"
    longest_token = 1
    system = ""
    tag: StepTag | None = None

    def __init__(self, methods: JudgeMethods) -> None:
        self._methods = methods

    def encode(self, problem: str, steps: Sequence[str]) -> Encoded:
        """One id per byte and one per step, where it is scored; and the tokens of the judge's prompts."""
        ids, positions = list(f"{problem}\n".encode()), []
        response = len(ids)
        for step in steps:
            ids += [*step.encode(), TAG]
            positions.append(len(ids) - 1)
        # the wordings are about as long for all kinds of steps
        asked = self._methods[None].prompt_tokens(problem, steps)
        return Encoded(tuple(ids), tuple(positions), response, asked=asked)

    def tokenize(self, prompt: Prompt) -> tuple[int, ...]:
        raise InvalidRequest("a judge reads no prompts, it is asked about texts: send messages")

    def at_tags(self, ids: Sequence[int]) -> Encoded:
        raise AssertionError("no prompt is tokenized")

    def tokens(self, encoded: Encoded) -> list[str]:
        return ["ş" if token == TAG else f"<0x{token:02X}>" for token in encoded.ids]

    def text(self, encoded: Encoded) -> str:
        """The conversation of all steps, each message after a line with its role."""
        return shown(self._methods[encoded.evidence].layout.messages(*texts(encoded)))


class JudgeEngine:
    """Scores by the judge at `chat`, as `methods` read it, a batch within `seconds`. Raises `ModelUnreachable`."""

    def __init__(self, chat: JudgeChat, methods: JudgeMethods, description: ModelDescription, seconds: float) -> None:
        self.format = JudgeFormat(methods)
        self.description = description
        self._chat, self._methods, self._seconds = chat, methods, seconds
        self._runner = asyncio.Runner()

    def score(self, batch: Sequence[Encoded]) -> list[StepScores]:
        """Step scores per item; tokens as the server counts them, cached ones only for items without a scope."""
        scores = self.call(all_of(map(self._score, batch)))
        if unread := sum(outcome.missing for outcome in scores):
            steps = sum(len(item.positions) for item in batch)
            logger.warning("the judge gave no verdict on %d of %d steps", unread, steps)
        return scores

    def close(self) -> None:
        self.call(self._chat.close())
        self._runner.close()

    def call(self, work: Coroutine[Any, Any, Result]) -> Result:
        """The result of work in the engine's event loop. Raises `ModelUnreachable` if it takes too long."""

        async def limited() -> Result:
            async with asyncio.timeout(self._seconds):
                return await work

        try:
            return self._runner.run(limited(), context=copy_context())  # else, for ever the first call's
        except TimeoutError:
            raise ModelUnreachable(
                f"the judge did not answer a batch within {self._seconds:g} s; raise --max-batch-seconds, or lower "
                "--judge-concurrency, which makes batches smaller"
            ) from None

    async def _score(self, item: Encoded) -> StepScores:
        inquiry = Inquiry(self._chat)
        scores = await self._methods[item.evidence].read(inquiry, *texts(item))
        computed = inquiry.usage.tokens if item.scope else inquiry.usage.computed_tokens
        return StepScores(tuple(score or 0.0 for score in scores), computed, inquiry.usage.tokens, scores.count(None))


def texts(encoded: Encoded) -> tuple[str, list[str]]:
    starts = [encoded.response, *(position + 1 for position in encoded.positions)]
    steps = [bytes(encoded.ids[start:end]).decode() for start, end in zip(starts, encoded.positions, strict=False)]
    return bytes(encoded.ids[: encoded.response - 1]).decode(), steps
