"""What the gateway does about an answer that is not accepted at the request's risk."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from starlette.responses import JSONResponse, Response

from tests.fake_engine import FakeEngine
from tests.fakes import COMPLETION_TOKENS, PROMPT_TOKENS, Upstream, upstream
from tests.server.calibrations import calibration, stopping
from tests.server.gateway.harness import PROBLEM, ask, boxed, elected, refusal
from tests.server.harness import Running, serving

AGREED = [boxed(7)]
SPLIT = [boxed(1), boxed(2), boxed(3), boxed(4)]
TERMS: dict[str, Any] = {"strategy": "majority", "risk": 0.05, "budget": 6, "round": 2, "stable": 0.01}


@contextmanager
def judged(tmp_path: Path, first: Upstream, second: Upstream | None = None, **options: Any) -> Iterator[Running]:
    more = {} if second is None else {"upstream_model": "second=large"}
    urls = [first.url] if second is None else [first.url, f"second={second.url}"]
    with serving(
        FakeEngine(), upstream_url=urls, vote_calibration=stopping(tmp_path, 0.01, 2), **more, **options
    ) as running:
        yield running


def tried(report: dict[str, Any]) -> list[tuple[str, int, str, bool]]:
    return [(each["upstream"], each["sampled"], each["answer"], each["accept"]) for each in report["attempts"]]


def test_an_accepted_answer_is_the_end_of_it(tmp_path: Path) -> None:
    with upstream(*AGREED) as first, upstream(*AGREED) as second, judged(tmp_path, first, second) as running:
        _, report = elected(running, **TERMS, on_reject="escalate")
    assert (report["accept"], report["calibration"]["pool"]) == (True, "a pool")
    assert tried(report) == [("first", 2, "7", True)]
    assert second.given == 0
    assert not any("not sure" in note for note in report["notes"])


@pytest.mark.parametrize(
    ("on_reject", "attempts"),
    [
        (None, None),
        ("say_so", [("first", 2, "1", False)]),
        ("sample_more", [("first", 2, "1", False), ("first", 4, "1", False)]),
        ("escalate", [("first", 2, "1", False), ("first", 4, "1", False), ("second", 2, "7", True)]),
    ],
)
def test_a_rejected_answer_goes_as_far_as_the_request_says(
    tmp_path: Path, on_reject: str | None, attempts: list[Any] | None
) -> None:
    terms = TERMS | ({} if on_reject is None else {"on_reject": on_reject})
    with upstream(*SPLIT) as first, upstream(*AGREED) as second, judged(tmp_path, first, second) as running:
        answer, report = elected(running, **terms)
    assert (tried(report) if "attempts" in report else None) == attempts
    escalated = on_reject == "escalate"
    assert (report["accept"], answer.choices[0].finish_reason) == (escalated, "stop")
    assert [note for note in report["notes"] if "not sure" in note] == [] if escalated else [report["notes"][-1]]
    assert [body["model"] for body in second.bodies] == (["large"] if escalated else [])
    assert answer.model == ("large-served" if escalated else "m-served")
    count = first.given + second.given
    requests = len(first.bodies) + len(second.bodies)
    assert answer.usage is not None
    assert answer.usage.completion_tokens == count * COMPLETION_TOKENS
    assert answer.usage.prompt_tokens == requests * PROMPT_TOKENS
    if attempts is not None:
        spent = report["attempts"]
        assert sum(each["completion_tokens"] for each in spent) == answer.usage.completion_tokens
        served = {"first": "m-served", "second": "large-served"}
        assert all(each["model"] == served[each["upstream"]] for each in spent)


def test_if_no_upstream_s_answer_is_accepted_the_second_s_says_so(tmp_path: Path) -> None:
    with upstream(*SPLIT) as first, upstream(*SPLIT[::-1]) as second, judged(tmp_path, first, second) as running:
        _, report = elected(running, **TERMS, on_reject="escalate")
    assert (report["answer"], report["accept"]) == ("4", False)
    assert "a risk of 0.05 takes a certainty of 0.600, it has 0.500" in report["notes"][-1]


def test_upstreams_are_asked_in_turn_until_an_answer_is_accepted(tmp_path: Path) -> None:
    terms = TERMS | {"on_reject": "escalate", "models": {"small": 4, "large": 2}}
    del terms["budget"]
    with upstream(*SPLIT) as small, upstream(*AGREED, usage={"cost": 0.5}) as large, upstream() as unused:
        urls = [f"{name}={each.url}" for name, each in (("unused", unused), ("small", small), ("large", large))]
        with serving(FakeEngine(), upstream_url=urls, vote_calibration=stopping(tmp_path, 0.01, 2)) as running:
            answer, report = elected(running, **terms)
    assert tried(report) == [("small", 2, "1", False), ("small", 2, "1", False), ("large", 2, "7", True)]
    assert [each.get("cost") for each in report["attempts"]] == [None, None, 0.5]
    assert {name: each["sampled"] for name, each in report["models"].items()} == {"small": 4, "large": 2}
    assert (report["upstream"], report["usage"]["upstream"]) == ("large", {"cost": 0.5})
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 6 * COMPLETION_TOKENS


@pytest.mark.parametrize(
    ("broken", "why"),
    [
        (JSONResponse({"error": {"message": "no"}}, 500), "the upstream answered 500: no"),
        (
            Response('data: {"error": {"message": "busy"}}\n\n', media_type="text/event-stream"),
            "the upstream's answer is an error: busy",
        ),
    ],
)
def test_if_the_second_upstream_fails_the_first_s_answer_stands(tmp_path: Path, broken: Response, why: str) -> None:
    with (
        upstream(*SPLIT) as first,
        upstream(*AGREED, errors={0: broken}) as second,
        judged(tmp_path, first, second) as running,
    ):
        _, report = elected(running, **TERMS, on_reject="escalate")
    assert (report["answer"], report["accept"]) == ("1", False)
    assert report["notes"][-1] == f"the upstream second gave no answer: {why}"


@pytest.mark.parametrize("hangs", [False, True])
def test_if_the_first_upstream_fails_the_second_s_answer_stands(tmp_path: Path, hangs: bool) -> None:
    broken = {} if hangs else dict.fromkeys(range(9), refusal(500))
    held = {0: threading.Event()} if hangs else {}
    with (
        upstream(*AGREED, errors=broken, held=held) as first,
        upstream(*AGREED) as second,
        judged(tmp_path, first, second, gateway_seconds=2) as running,
    ):
        _, report = elected(running, **TERMS, on_reject="escalate")
    assert (tried(report), report["accept"]) == ([("second", 2, "7", True)], True)
    assert "the upstream first gave no answer: the " in report["notes"][-1]


def test_candidates_without_an_answer_are_not_accepted(tmp_path: Path) -> None:
    with upstream("a poem\non frogs") as first, judged(tmp_path, first) as running:
        _, report = elected(running, **TERMS)
    assert (report["answer"], report["accept"], "calibration" in report) == (None, False, False)


def test_a_vote_that_falls_back_to_the_majority_is_not_accepted(tmp_path: Path) -> None:
    texts = [boxed(number, "x" * 500) for number in (1, 2, 2)]
    with upstream(*texts) as first:
        path = calibration(tmp_path, elections={"prm": [(0.6, True)] * 60})
        with serving(FakeEngine(max_tokens=200), upstream_url=first.url, vote_calibration=path) as running:
            _, report = elected(running, strategy="prm", risk=0.05, budget=3, round=3)
    assert (report["answer"], report["decided_by"], report["accept"]) == ("2", "majority", False)


def test_a_stream_reports_it_too(tmp_path: Path) -> None:
    with upstream(*SPLIT) as first, upstream(*AGREED) as second, judged(tmp_path, first, second) as running:
        terms = TERMS | {"on_reject": "escalate", "show_samples": True}
        *chunks, last = ask(running, stream=True, extra_body={"unprm": terms})
    assert (last.unprm["accept"], len(last.unprm["attempts"])) == (True, 3)
    shown = [chunk.unprm["candidate"]["index"] for chunk in chunks if "candidate" in getattr(chunk, "unprm", {})]
    assert shown == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    ("terms", "detail"),
    [
        ({"on_reject": "sample_more"}, "on_reject needs a risk"),
        ({"risk": 0.05, "on_reject": "escalate"}, "it is set by another --upstream-url"),
        ({"risk": 0.05, "strategy": "wrf", "alpha": 0.1}, "is of alpha 0.5, and the vote has 0.1"),
    ],
)
def test_what_cannot_be_judged_is_refused_before_anything_is_sampled(
    tmp_path: Path, terms: dict[str, Any], detail: str
) -> None:
    with upstream(*SPLIT) as first, judged(tmp_path, first) as running:
        body = {"model": "m", "messages": [{"role": "user", "content": PROBLEM}], "unprm": terms}
        answer = running.post("/v1/chat/completions", body)
    assert (answer.status_code, first.given) == (422, 0)
    assert detail in answer.json()["error"]["message"]
    assert answer.json()["error"]["param"].startswith("/unprm")


def test_tool_calls_are_not_what_was_calibrated(tmp_path: Path) -> None:
    tools = [{"type": "function", "function": {"name": "add", "parameters": {}}}]
    body = {"model": "m", "messages": [{"role": "user", "content": PROBLEM}], "tools": tools, "unprm": TERMS}
    with upstream(*SPLIT) as first, judged(tmp_path, first) as running:
        answer = running.post("/v1/chat/completions", body)
    assert (answer.status_code, answer.json()["errors"][0]["pointer"], first.given) == (422, "/unprm/risk", 0)


EIGHT = {"candidates": (8, 8), "share": (0.2, 1.0)}


def test_an_election_stops_where_those_of_the_calibration_did(tmp_path: Path) -> None:
    """All candidates, or as many as its own settings say."""
    terms: dict[str, Any] = {"strategy": "majority", "risk": 0.05}
    for make, sampled in (
        (partial(calibration, ranges=EIGHT), 8),
        (partial(stopping, stable=0.9, round=3, ranges=EIGHT | {"candidates": (3, 8)}), 3),
    ):
        path = make(tmp_path)
        with (
            upstream(*AGREED) as first,
            serving(FakeEngine(), upstream_url=first.url, vote_calibration=path) as running,
        ):
            _, report = elected(running, **terms)
            voted = running.post("/vote/majority", {"solutions": AGREED * 8, "risk": 0.05})
        assert (report["sampled"], report["accept"], report["budget"]) == (sampled, True, 8)
        assert voted.status_code == (200 if sampled == 8 else 422), voted.text
    assert "is of votes that stop early (stable 0.9, round 3), and the vote is one of those that take all" in voted.text


def test_an_election_that_would_stop_elsewhere_is_refused(tmp_path: Path) -> None:
    path = calibration(tmp_path)
    with upstream(*AGREED) as first, serving(FakeEngine(), upstream_url=first.url, vote_calibration=path) as running:
        body = {"model": "m", "messages": [{"role": "user", "content": PROBLEM}]}
        answer = running.post("/v1/chat/completions", body | {"unprm": TERMS | {"stable": 0.5}})
    assert (answer.status_code, first.given) == (422, 0)
    assert "is of votes that take all candidates, and the vote is one of those that stop early" in answer.text


def test_a_calibration_of_too_few_questions_says_how_many_it_takes(tmp_path: Path) -> None:
    path = calibration(tmp_path, elections={"majority": [(1.0, True)] * 40})
    with upstream(*AGREED) as first, serving(FakeEngine(), upstream_url=first.url, vote_calibration=path) as running:
        _, report = elected(running, strategy="majority", risk=0.05)
    assert report["accept"] is False
    assert report["notes"][-1].endswith(
        "a pool supports accepting no answer at a risk of 0.05: it has 40 questions, 45 are needed"
    )
