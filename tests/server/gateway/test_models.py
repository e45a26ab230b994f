"""Several upstreams in one election: what is asked of each, what is reported of it, and what becomes of one that fails;
what the upstreams tell of their tokens and cost."""

import json
import re
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any

import openai
import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from server.settings import UpstreamOptions
from tests.fake_engine import FakeEngine
from tests.fakes import COMPLETION_TOKENS, PROMPT_TOKENS, Upstream, upstream
from tests.server.gateway.harness import PROBLEM, ask, before, boxed, client, elected, gateway, refusal
from tests.server.harness import Running, serving
from unprm.errors import ModelUnreachable

SPLIT = [boxed(1), boxed(2), boxed(3), boxed(4)]
MAJORITY: dict[str, Any] = {"strategy": "majority", "stable": 1}
DETAILS = {
    "prompt_tokens_details": {"cached_tokens": 4},
    "completion_tokens_details": {"reasoning_tokens": 5},
    "cost": 0.1,
}


@contextmanager
def both(small: Upstream, large: Upstream, **options: Any) -> Iterator[Running]:
    if options:
        urls = [f"small={small.url}", f"large={large.url}"]
        with serving(FakeEngine(), upstream_url=urls, upstream_model="large=org/large", **options) as running:
            yield running
    else:
        model = UpstreamOptions(large.url, None, "org/large")
        with before(small=UpstreamOptions(small.url, None, None), large=model) as running:
            yield running


def test_candidates_of_several_models_vote_together() -> None:
    with (
        upstream(boxed(1), boxed(2), boxed(3)) as small,
        upstream(boxed(7), usage=DETAILS) as large,
        both(small, large, upstream_key="large=theirs") as running,
    ):  # whichever comes first, the others can still decide
        answer, report = elected(running, **MAJORITY, models={"small": 3, "large": 2}, round=5)
    assert (report["answer"], report["budget"], report["sampled"], report["solution_index"]) == ("7", 5, 5, 3)
    assert (answer.model, report["upstream"], answer.choices[0].message.content) == (
        "org/large-served",
        "large",
        boxed(7),
    )
    told = {"cached_tokens": 4, "reasoning_tokens": 5, "cost": 0.1}
    tokens = {"prompt_tokens": PROMPT_TOKENS, "completion_tokens": 2 * COMPLETION_TOKENS}
    assert report["models"] == {
        "small": {"model": "m-served", "sampled": 3, **tokens, "completion_tokens": 3 * COMPLETION_TOKENS},
        "large": {"model": "org/large-served", "sampled": 2, **tokens} | told,
    }
    assert report["usage"]["upstream"] == told
    assert answer.usage is not None
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (2 * PROMPT_TOKENS, 5 * COMPLETION_TOKENS)
    assert ([body["model"] for body in small.bodies], small.keys) == (["m"], [None])
    assert ([body["model"] for body in large.bodies], large.keys) == (["org/large"], ["Bearer theirs"])


@pytest.mark.parametrize(("texts", "asked"), [([boxed(1)], 0), (SPLIT, 2)])
def test_the_dear_model_is_asked_only_if_the_cheap_one_s_candidates_disagree(texts: list[str], asked: int) -> None:
    with upstream(*texts) as small, upstream(boxed(2)) as large, both(small, large) as running:
        _, report = elected(running, strategy="majority", models={"small": 4, "large": 2}, round=4)
    assert (small.given, large.given) == (4, asked)
    sampled = {name: each["sampled"] for name, each in report["models"].items()}
    assert sampled == {"small": 4} | ({"large": asked} if asked else {})


def test_no_model_is_asked_before_the_vote_on_the_earlier_one_s_candidates_is_known() -> None:
    terms = {"strategy": "majority", "models": {"large": 3, "small": 2}, "round": 5}
    with upstream(boxed(1)) as small, upstream(boxed(7)) as large, both(small, large) as running:
        _, report = elected(running, **terms)
        assert small.given == 0
        _, whole = elected(running, **terms | {"models": {"large": 2, "small": 2}, "stable": 1})
    assert (report["answer"], report["upstream"], report["saved"], report["failures"]) == ("7", "large", 2, [])
    assert {name: each["sampled"] for name, each in report["models"].items()} == {"large": 3}
    assert (whole["rounds"], whole["tie"], small.given) == (2, True, 2)


def test_without_a_say_the_first_is_asked_and_one_without_a_name_is_called_first() -> None:
    with upstream(boxed(1)) as small, upstream(boxed(2)) as large, both(small, large) as running:
        _, report = elected(running, **MAJORITY, budget=2)
        with gateway(small) as alone:
            _, other = elected(alone, **MAJORITY, models={"first": 2})
    assert (report["answer"], report["upstream"], large.given) == ("1", "small", 0)
    assert (other["sampled"], other["budget"], "models" in other, "upstream" in other) == (2, 2, False, False)


@pytest.mark.parametrize(
    ("texts", "errors", "round", "failed", "status"),
    [
        ([], range(9), 4, 6, 500),  # all, and from the start
        ([], range(9), 8, 6, 400),
        ([boxed(1)], range(1, 9), 2, 4, 429),  # all but the first round's
        ([boxed(1)], range(1, 9), 1, 5, 500),  # those of two rounds and all that were still to come
    ],
)
def test_an_upstream_that_fails_costs_its_candidates(
    texts: list[str], errors: range, round: int, failed: int, status: int
) -> None:
    broken = dict.fromkeys(errors, refusal(status))
    with upstream(*texts, errors=broken) as small, upstream(boxed(2)) as large, both(small, large) as running:
        _, report = elected(running, **MAJORITY, models={"small": 6, "large": 8}, round=round)
    assert (report["answer"], report["upstream"]) == ("2", "large")
    assert report["sampled"] == 6 - failed + large.given
    assert sum(each["candidates"] for each in report["failures"]) == failed
    assert all(each["detail"].startswith("small: the upstream") for each in report["failures"])


def test_if_every_upstream_fails_so_does_the_request() -> None:
    broken = dict.fromkeys(range(9), refusal(500))
    with upstream(errors=broken) as small, upstream(errors=broken) as large, both(small, large) as running:
        body = {"model": "m", "messages": [{"role": "user", "content": PROBLEM}]}
        terms = MAJORITY | {"models": {"small": 2, "large": 2}, "round": 1}
        answer = running.post("/v1/chat/completions", body | {"unprm": terms})
    assert (answer.status_code, answer.json()["detail"]) == (502, "the upstream answered 500: no")


def test_an_upstream_that_hangs_leaves_the_others_their_share_of_the_time() -> None:
    with (
        upstream(boxed(1), held={0: threading.Event()}) as small,
        upstream(boxed(2)) as large,
        both(small, large, gateway_seconds=2) as running,
    ):
        _, report = elected(running, **MAJORITY, models={"small": 6, "large": 2}, round=4)
    assert (report["answer"], report["upstream"], report["sampled"]) == ("2", "large", 2)
    assert report["failures"] == [{"candidates": 6, "detail": "small: they were not waited for: time ran out"}]
    assert len(small.bodies) == 1


def test_one_that_gives_no_log_probabilities_costs_no_vote_that_needs_them() -> None:
    terms = {"strategy": "cisc", "stable": 1, "models": {"small": 2, "large": 2}, "round": 2}
    with upstream(boxed(1), gives_logprobs=False) as small, upstream(boxed(2)) as large:
        with both(small, large) as running:
            _, report = elected(running, **terms)
        with both(small, small) as running, pytest.raises(openai.InternalServerError, match="no log-probabilities"):
            elected(running, **terms)
    assert (report["answer"], report["decided_by"], report["sampled"]) == ("2", "confidence", 4)


@pytest.mark.parametrize(
    ("more", "headers", "message"),
    [
        (
            {"models": {"smal": 2}},
            {},
            "/unprm/models: a name is not an upstream; expected one of small, large (did you",
        ),
        ({"models": {"small": 200, "large": 100}}, {}, "300 candidates were requested, the limit is 256"),
        ({"models": {"small": 0}}, {}, "greater than or equal to 1"),
        ({"models": {"small": 2}, "budget": 2}, {}, "send no budget"),
        ({"models": {"small": 2}}, {"X-ITS-Budget": "2"}, "send no budget"),
        ({}, {"X-ITS-Budget": "many"}, "header X-ITS-Budget: Input should be a valid integer"),
        ({}, {"X-ITS-Budget": "1000"}, "less than or equal to 256"),
    ],
)
def test_what_cannot_be_sampled_is_refused_before_anything_is(
    more: dict[str, Any], headers: dict[str, str], message: str
) -> None:
    with (
        upstream(boxed(1)) as small,
        upstream(boxed(2)) as large,
        both(small, large) as running,
        pytest.raises(openai.UnprocessableEntityError) as refused,
    ):
        ask(running, extra_body={"unprm": more}, extra_headers=headers)
    assert message in refused.value.response.json()["detail"]
    assert (small.given, large.given) == (0, 0)


@pytest.mark.parametrize(
    ("headers", "body", "sampled"),
    [({"X-ITS-Budget": "2"}, {}, 2), ({}, {"budget": 3}, 3), ({"x-its-budget": "2"}, {"budget": 3}, 2)],
)
def test_its_hub_s_budgets_are_heeded(headers: dict[str, str], body: dict[str, Any], sampled: int) -> None:
    """As there, the header overrides the body."""
    more = body | {"unprm": MAJORITY}
    with upstream(*SPLIT) as reasoner, gateway(reasoner) as running:
        answer = ask(running, extra_body=more, extra_headers=headers)
    assert (answer.unprm["budget"], answer.unprm["sampled"], reasoner.given) == (sampled, sampled, sampled)
    assert not any("budget" in sent for sent in reasoner.bodies)


@pytest.mark.parametrize("stream", [False, True])
def test_what_upstreams_tell_of_their_tokens_is_summed(stream: bool) -> None:
    """Whether they stream or not; over two requests."""
    terms = MAJORITY | {"budget": 4, "round": 2}
    with upstream(*SPLIT, usage=DETAILS, streams=stream) as reasoner, gateway(reasoner) as running:
        answer, report = elected(running, **terms)
        with client(running) as api:
            responses = api.responses.create(model="m", input=PROBLEM, extra_body={"unprm": terms})
    assert report["usage"]["upstream"] == {"cached_tokens": 8, "reasoning_tokens": 10, "cost": pytest.approx(0.2)}
    assert report["usage"]["cached_tokens"] == 0  # of the PRM, as ever
    for usage in (answer.usage.model_dump(), responses.usage.model_dump()):  # type: ignore[union-attr]
        inputs, outputs = ("prompt", "completion") if "prompt_tokens" in usage else ("input", "output")
        assert usage[f"{inputs}_tokens_details"]["cached_tokens"] == 8
        assert usage[f"{outputs}_tokens_details"]["reasoning_tokens"] == 10


def test_what_no_upstream_tells_is_not_reported() -> None:
    with upstream(*SPLIT) as reasoner, gateway(reasoner) as running:
        answer, report = elected(running, **MAJORITY, budget=2)
    assert answer.usage is not None
    assert answer.usage.model_dump(exclude_unset=True).keys() == {"prompt_tokens", "completion_tokens", "total_tokens"}
    assert "upstream" not in report["usage"]


def test_nothing_is_bought_while_the_prm_that_is_to_score_it_is_away() -> None:
    engine = FakeEngine(failures=dict.fromkeys(range(99), ModelUnreachable("it is away")))
    with upstream(*SPLIT) as reasoner, gateway(reasoner, engine) as running:
        for _ in range(2):
            with pytest.raises(openai.InternalServerError, match="it is away"):
                elected(running, strategy="prm", budget=2)
        assert reasoner.given == 2  # of the first request, which found it away
        _, report = elected(running, strategy="majority", budget=2)
    assert report["sampled"] == 2


@pytest.mark.parametrize(
    "usage",
    [
        "x",
        {"prompt_tokens": "many", "completion_tokens": -1, "cost": -0.5},
        {"prompt_tokens": 1.5, "completion_tokens": 10**20, "prompt_tokens_details": "x"},
    ],
    ids=str,
)
@pytest.mark.parametrize("stream", [False, True])
def test_a_count_of_tokens_that_cannot_be_read_costs_no_candidate(usage: Any, stream: bool) -> None:
    kind = Miscounting if not isinstance(usage, dict) else Upstream
    with upstream(boxed(1), kind=kind, usage=usage, streams=stream) as reasoner, gateway(reasoner) as running:
        answer, report = elected(running, **MAJORITY, budget=2, round=2)
    assert (report["answer"], report["sampled"], report["failures"]) == ("1", 2, [])
    assert "upstream" not in report["usage"]
    assert answer.usage is not None
    assert (answer.usage.completion_tokens > 0) == (stream and kind is Miscounting)  # estimated


class Miscounting(Upstream):
    """Its usage is no object."""

    async def _complete(self, request: Request) -> Response:
        told, self.usage = self.usage, {}
        response = await super()._complete(request)
        self.usage = told
        if isinstance(response, StreamingResponse):
            return StreamingResponse(self._miscounted(response), media_type="text/event-stream")
        return JSONResponse(json.loads(bytes(response.body)) | {"usage": told})

    async def _miscounted(self, response: StreamingResponse) -> AsyncIterator[str]:
        async for part in response.body_iterator:
            yield re.sub(r'"usage": {[^}]*}', f'"usage": {json.dumps(self.usage)}', str(part))
