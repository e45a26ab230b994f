"""A judge behind OpenAI's chat API for tests: its verdict on a step is a rule of the test's."""

import math
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from server.models.load import load
from server.settings import Settings
from tests.fakes import Seen, openai_server
from tests.server.harness import Running, serving
from tests.support import until
from unprm.engines.judge.engine import JudgeEngine
from unprm.engines.judge.self_test import QUESTIONS
from unprm.models.judge import load_judge
from unprm.models.options import EngineOptions, JudgeOptions
from unprm.openai.completion import Completion

MODEL = "some/llm"
Choice = dict[str, Any]


def token(text: str, **likely: float) -> dict[str, Any]:
    """A sampled token, with the probabilities of the likeliest ones in its place."""
    top = [{"token": each, "logprob": math.log(value), "bytes": None} for each, value in likely.items()]
    return {"token": text, "logprob": -0.1, "bytes": None, "top_logprobs": top}


def choice(text: str, *tokens: dict[str, Any]) -> Choice:
    """A completion; without tokens it has no log-probabilities."""
    logprobs = {"content": list(tokens)} if tokens else None
    return {"index": 0, "message": {"role": "assistant", "content": text}, "logprobs": logprobs}


def written(text: str, *tokens: dict[str, Any]) -> Completion:
    """A completion as the judge reads it."""
    read = Completion.read(choice(text, *tokens))
    assert read is not None
    return read


def answered(*choices: Choice, prompt: int = 10, cached: int = 0, completion: int = 1) -> dict[str, Any]:
    """The body of a response."""
    usage = {"prompt_tokens": prompt, "completion_tokens": completion, "prompt_tokens_details": None}
    if cached:
        usage["prompt_tokens_details"] = {"cached_tokens": cached}  # type: ignore[assignment]
    return {"id": "x", "object": "chat.completion", "choices": list(choices), "usage": usage}


def last_step(body: Any) -> str:
    """The last step of a request in the plain layout."""
    return re.findall(r"<step [0-9a-f]{16}>\n(.*?)\n</step", body["messages"][-1]["content"], re.DOTALL)[-1]


def is_self_test(body: Any) -> bool:
    """Whether a request is about a problem of the self-test."""
    said = str(body["messages"])
    return any(question.problem in said for question in QUESTIONS)


def is_sum(step: str) -> bool:
    """Whether each equation in a step is a true sum, and the step none of the wrong ones of the self-test."""
    sums = re.findall(r"(\d+) \+ (\d+) = (\d+)", step)
    slips = any(question.wrong in step for question in QUESTIONS)
    return not slips and all(int(one) + int(two) == int(three) for one, two, three in sums)


def checks_sums(body: Any) -> dict[str, Any]:
    """A judge of sums that is sure of itself, in the verdict read-out."""
    yes, no = (0.9, 0.1) if is_sum(last_step(body)) else (0.2, 0.8)
    return answered(choice("Yes", token("Yes", Yes=yes, No=no)), prompt=100, cached=60)


@dataclass
class Judge:
    """A running judge's server and the requests that it got."""

    url: str
    requests: list[Seen]

    def load(self, patience: float = 60.0, **options: Any) -> JudgeEngine:
        """An engine that asks it."""
        chosen = JudgeOptions(judge_url=self.url, judge_model=MODEL, **options)
        return load_judge(chosen, EngineOptions(), patience)

    @property
    def bodies(self) -> list[Any]:
        return [request.body for request in self.requests]


@contextmanager
def judging(answer: Callable[[Any], Any] = checks_sums, **more: Any) -> Iterator[Judge]:
    """Serves until the end of the block."""
    with openai_server(answer, **more) as (url, requests):
        yield Judge(url, requests)


@contextmanager
def served(judge: Judge, **options: Any) -> Iterator[Running]:
    """A server before the judge, which is ready."""
    chosen = {"model": ["judge"], "judge_url": judge.url, "judge_model": MODEL, **options}
    settings = Settings(**chosen)
    (request,) = settings.models().values()
    with serving(partial(load, settings, request), partial(load, settings), **chosen) as running:
        until(lambda: running.get("/readyz").status_code == 200)
        yield running
