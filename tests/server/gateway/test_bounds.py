"""What callers and the upstream can cost the gateway, and what it costs others."""

import asyncio
import threading
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import openai
import pytest

from server.app import create_app
from server.lease import Lease
from server.routes import route
from server.routes.gateway import sampling
from server.routes.gateway import upstream as upstream_module
from server.settings import Settings
from tests.fake_engine import FakeEngine
from tests.fakes import upstream
from tests.server.gateway.harness import PROBLEM, boxed, client, elected, gateway
from tests.server.gateway.harness import ask as chat
from tests.server.harness import Background, ask
from tests.support import PATIENCE, asynchronous, until
from unprm.fair_shares import Reservation

LONG = "x" * 40_000


@pytest.mark.parametrize(
    ("module", "name", "strategy"),
    [
        (upstream_module, "_logprobs", "cisc"),
        (upstream_module, "_unchanged", "cisc"),  # if the caller asks for log-probabilities
        (upstream_module, "encoded", "cisc"),
        (upstream_module, "encoded", "majority"),  # whose completions are streamed
        (sampling, "confidence_of", "cisc"),
        (route, "to_json", "cisc"),
    ],
)
def test_long_answers_are_read_and_written_while_others_are_answered(
    monkeypatch: pytest.MonkeyPatch, module: Any, name: str, strategy: str
) -> None:
    gate, begun, function = threading.Event(), threading.Event(), getattr(module, name)

    def held(*arguments: Any, **options: Any) -> Any:
        if not begun.is_set():  # the first call alone
            begun.set()
            assert gate.wait(PATIENCE)
        return function(*arguments, **options)

    monkeypatch.setattr(module, name, held)
    problem = PROBLEM + (LONG if name == "encoded" else "")
    body: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": problem}]}
    body |= {"unprm": {"strategy": strategy, "budget": 2}, "logprobs": name == "_unchanged"}
    with upstream(boxed(1, LONG)) as reasoner, gateway(reasoner) as running:
        long = Background(lambda: running.post("/v1/chat/completions", body))
        assert begun.wait(PATIENCE)
        assert running.post("/score_steps", ask("a")).status_code == 200
        gate.set()
        assert long.result().status_code == 200


def test_an_answer_that_is_too_long_is_the_upstream_s_failure() -> None:
    """With log-probabilities, which are dropped once they are read, it may be longer."""
    with upstream(boxed(1, "x" * 2000)) as reasoner, gateway(reasoner, max_body_bytes=2000) as running:
        with pytest.raises(openai.InternalServerError, match="longer than 2000 bytes") as caught:
            elected(running, budget=1)
        assert (caught.value.status_code, caught.value.code) == (502, "upstream_failed")
        reasoner.texts = [boxed(1), "x" * 16_000]
        reasoner.given = 0
        _, report = elected(running, budget=2, strategy="cisc", round=1, stable=1)
        assert report["sampled"] == 1
        (failure,) = report["failures"]
        assert failure["detail"] == "the upstream's answer is longer than 16000 bytes"


def test_texts_of_all_candidates_are_together_no_longer_than_a_body() -> None:
    with upstream(boxed(1, "x" * 1000)) as reasoner, gateway(reasoner, max_body_bytes=2500) as running:
        _, report = elected(running, strategy="prm", budget=3, round=1, stable=1)
    (failure,) = report["failures"]
    assert (report["sampled"], failure["candidates"]) == (2, 1)
    assert "together longer than 2500 characters" in failure["detail"]


def test_memory_of_answers_is_of_the_caller_s_share(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("server.lease.BODIES", 8)
    monkeypatch.setattr(route, "OBJECT_BYTES", 0)
    monkeypatch.setattr(route, "VALUE_BYTES", 0)
    long: Any = {"extra_body": {"unprm": {"strategy": "cisc", "budget": 1}, "top_logprobs": 20}}
    with upstream(boxed(1)) as reasoner, gateway(reasoner, max_body_bytes=2000) as running:
        bodies = running.service.admission.bodies
        with Reservation(bodies, "127.0.0.1/32") as held:
            held.take(6500)
            with pytest.raises(openai.RateLimitError, match="bytes of this caller wait or are worked on"):
                chat(running, **long)
            elected(running, budget=1)  # a short answer finds room
        with Reservation(bodies, "another") as held:
            held.take(7000)
            chat(running, **long)
        with Reservation(bodies, "anybody") as held:
            held.take(16_000)  # all that was taken is given back


def test_an_upstream_that_gives_one_at_a_time_gets_few_calls_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upstream_module, "MAX_CONCURRENT", 2)
    gate = threading.Event()
    with (
        upstream(boxed(1), boxed(2), takes_n=False, held=dict.fromkeys(range(40), gate)) as reasoner,
        gateway(reasoner) as running,
    ):
        waiting = Background(lambda: elected(running, strategy="majority", budget=20, round=20, stable=1))
        until(lambda: len(reasoner.bodies) == 2)
        gate.set()
        _, report = waiting.result()
    assert (report["sampled"], reasoner.given, reasoner.most_running) == (20, 20, 2)


def test_many_candidates_are_asked_for_in_several_requests() -> None:
    with upstream(boxed(1)) as reasoner, gateway(reasoner) as running:
        elected(running, strategy="majority", budget=40, round=40, stable=1)
        elected(running, strategy="cisc", budget=2, round=2, stable=1)
    assert sorted(body.get("n", 1) for body in reasoner.bodies) == [1, 1, 8, 16, 16]


@pytest.mark.parametrize("media_type", ["text/html", "application/json; charset=\u00e9"])
def test_what_the_upstream_passes_on_is_no_page(media_type: str) -> None:
    with upstream("go on", media_type=media_type) as reasoner, gateway(reasoner) as running, client(running) as api:
        answer = api.completions.with_raw_response.create(model="m", prompt="so")
    assert answer.parse().choices[0].text == "go on"
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["x-content-type-options"] == "nosniff"


def test_a_long_text_is_streamed_in_few_parts() -> None:
    text = "x\n" * 3500 + boxed(1)
    body = {"model": "m", "messages": [{"role": "user", "content": PROBLEM}], "stream": True, "unprm": {"budget": 1}}
    with upstream(text) as reasoner, gateway(reasoner) as running, client(running) as api:
        extra = body.pop("unprm")
        chunks = list(api.chat.completions.create(**body, extra_body={"unprm": extra}))  # type: ignore[call-overload]
    parts = [chunk.choices[0].delta.content for chunk in chunks if chunk.choices and chunk.choices[0].delta.content]
    assert "".join(parts) == text
    assert 500 < len(parts) <= 1000


@asynchronous
async def test_of_a_caller_s_long_answers_two_are_read_at_a_time() -> None:
    """The others wait for room, instead of failing for lack of it."""
    state = create_app(Settings(upstream_url="http://127.0.0.1:9"), FakeEngine()).state
    reasoner: upstream_module.Upstream = state.upstreams["first"]
    mine, other = (Lease(state.service.admission, share=share) for share in ("me", "other"))
    async with AsyncExitStack() as stack:
        first, second = AsyncExitStack(), AsyncExitStack()
        for answer in (first, second):
            await stack.enter_async_context(answer)
            take = await answer.enter_async_context(reasoner._memory_for(mine, {}))
            await take(2**20)
            await take(2**20)
        short, others, third = [
            await stack.enter_async_context(reasoner._memory_for(context, {})) for context in (mine, other, mine)
        ]
        await short(2**20)
        await others(2**21)
        waiting = asyncio.ensure_future(third(2**21))
        await asyncio.sleep(0.01)
        assert not waiting.done()
        await first.aclose()
        await waiting
    await reasoner.close()


@pytest.mark.parametrize("fails", ["texts", "caller"])
def test_tokens_count_against_a_quota_whatever_becomes_of_the_answer(tmp_path: Path, fails: str) -> None:
    file, key = tmp_path / "keys", {"Authorization": "Bearer CANARY-small"}
    file.write_text("a CANARY-small 1\n")
    body: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": PROBLEM}]}
    body |= {"unprm": {"strategy": "majority", "budget": 2, "stable": 1, "show_samples": True}, "stream": True}
    never = threading.Event()
    limits: dict[str, Any] = {"max_body_bytes": 2500} if fails == "texts" else {}
    with (
        upstream(boxed(1, "x" * 2000), held={1: never} if fails == "caller" else {}) as reasoner,
        gateway(reasoner, api_keys_file=file, **limits) as running,
    ):
        with running.http.stream("POST", "/v1/chat/completions", json=body, headers=key) as events:
            assert any(
                ('"candidate"' if fails == "caller" else "upstream_failed") in line for line in events.iter_lines()
            )
        refused = running.post("/v1/chat/completions", body, headers=key)
        never.set()
    assert (refused.status_code, refused.json()["code"]) == (429, "quota_exceeded")
