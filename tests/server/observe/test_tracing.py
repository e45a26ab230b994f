"""Traces: a span for each part of a request and for each call, sent to a collector, within the caller's trace, without
its words."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status
from starlette.responses import JSONResponse

from tests.fakes import COMPLETION_TOKENS, PROMPT_TOKENS, Upstream, upstream
from tests.server.collector import Collector, collector, values
from tests.server.harness import ask, boxed
from tests.server.processes import Process, process

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
CALLER = "00f067aa0ba902b7"


class Collected(NamedTuple):
    """The answers to a vote and to a chat in one trace, the upstream, and all that was collected."""

    vote: Any
    chat: Any
    reasoner: Upstream
    by: Collector

    def traced(self, root: str) -> tuple[Span, dict[str, Span]]:
        """A request's span, and those below it by their names."""
        spans = [span for span in self.by.spans if span.trace_id.hex() == TRACE]
        (request,) = (span for span in spans if span.name == root)
        below, parents = dict[str, Span](), {request.span_id}
        while found := [span for span in spans if span.parent_span_id in parents and span.name not in below]:
            below |= {span.name: span for span in found}
            parents |= {span.span_id for span in found}
        return request, below


@pytest.fixture(scope="module")
def collected(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Collected]:
    texts = [r"CANARY \boxed{7}", r"CANARY \boxed{7}"]
    with collector() as traces, upstream(*texts) as reasoner:
        reasoner.refused["refuse"] = JSONResponse({"error": {"message": "CANARY"}}, 400)
        reasoner.for_problem["silence"] = ["I can't tell, CANARY.", "I am not sure, CANARY."]
        options = f"--otlp-endpoint={traces.url}", f"--upstream-url={reasoner.url}"
        with process(tmp_path_factory.mktemp("traced") / "log", *options) as running:
            vote, chat = _ask(running)
            assert running.end() == 0
        yield Collected(vote, chat, reasoner, traces)


def _ask(server: Process) -> tuple[Any, Any]:
    server.http.post("/score_steps", json=ask("the first batch fails"))
    headers = {"traceparent": f"00-{TRACE}-{CALLER}-01", "user-agent": "CANARY", "baggage": "CANARY=1"}
    vote = server.http.post("/vote/wrf?CANARY=1", json=ask(boxed("CANARY"), boxed(2)), headers=headers)
    body = {"model": "m/1", "messages": [{"role": "user", "content": "CANARY"}], "unprm": {"budget": 2, "round": 2}}
    chat = server.http.post("/v1/chat/completions", json=body, headers=headers)
    assert (vote.status_code, chat.status_code) == (200, 200)
    silent = body | {"model": "the CANARY", "messages": [{"role": "user", "content": "silence"}]}
    silent["unprm"] = {"strategy": "majority"}
    server.http.post("/v1/chat/completions", json=silent)
    other = {"traceparent": f"00-{'1' * 32}-{CALLER}-01", "tracestate": "canary=CANARY"}
    refused = body | {"messages": [{"role": "user", "content": "refuse"}]}
    server.http.post("/v1/chat/completions", json=refused, headers=other)
    server.http.post("/CANARY", headers={"traceparent": "CANARY"})
    server.http.get("/healthz", headers=[(b"traceparent", b"\xff\\x"), (b"host", b"127.0.0.1"), (b"x", b"\xff\\x")])
    return vote.json(), chat.json()


def test_a_request_is_traced_with_its_parts(collected: Collected) -> None:
    request, below = collected.traced("POST /vote/wrf")
    assert (request.kind, request.parent_span_id.hex()) == (Span.SPAN_KIND_SERVER, CALLER)
    assert set(below) == {"answers", "encode", "score"}
    assert {span.parent_span_id for span in below.values()} == {request.span_id}
    attributes = values(request.attributes)
    assert attributes["http.request.method"] == "POST"
    assert (attributes["http.route"], attributes["http.response.status_code"]) == ("/vote/wrf", 200)
    assert attributes["computed_tokens"] > 0


def test_the_trace_goes_on_at_the_upstream(collected: Collected) -> None:
    _, chat, reasoner, _ = collected
    request, below = collected.traced("POST /v1/chat/completions")
    generation, call = below["chat"], below["POST"]
    assert [generation.parent_span_id, call.parent_span_id] == [request.span_id, generation.span_id]
    assert {generation.kind, call.kind} == {Span.SPAN_KIND_CLIENT}
    assert reasoner.traces[0] == f"00-{TRACE}-{call.span_id.hex()}-01"
    assert values(call.attributes)["http.response.status_code"] == 200
    made, told = values(generation.attributes), values(request.attributes)
    assert (made["gen_ai.request.model"], made["gen_ai.response.model"]) == ("m/1", "m/1-served")
    assert (made["gen_ai.response.id"], told["gen_ai.response.id"]) == ("x", chat["id"])
    assert made["gen_ai.usage.input_tokens"] == told["gen_ai.usage.input_tokens"] == PROMPT_TOKENS
    assert made["gen_ai.usage.output_tokens"] == told["gen_ai.usage.output_tokens"] == 2 * COMPLETION_TOKENS


def test_an_elected_answer_is_an_event(collected: Collected) -> None:
    vote, chat, _, traces = collected
    records = traces.records
    assert {record.event_name for record in records} == {"gen_ai.evaluation.result"}
    by_span = {record.span_id: values(record.attributes) for record in records}
    voted = by_span[collected.traced("POST /vote/wrf")[0].span_id]
    assert (voted["gen_ai.evaluation.name"], voted["gen_ai.evaluation.score.label"]) == ("wrf", "combined")
    assert voted["gen_ai.evaluation.score.value"] == vote["candidates"][0]["score"]
    elected = by_span[collected.traced("POST /v1/chat/completions")[0].span_id]
    assert elected["gen_ai.response.id"] == chat["id"]
    assert elected["gen_ai.evaluation.name"] == chat["unprm"]["strategy"]
    fallback = [values(each.attributes)["gen_ai.evaluation.score.label"] for each in records]
    assert sorted(fallback) == ["combined", "none", "unanimous"]


def test_nothing_that_a_caller_wrote_is_sent(collected: Collected) -> None:
    assert {"POST unmatched", "GET /healthz"} <= {span.name for span in collected.by.spans}
    assert all(b"CANARY" not in body for _, body in collected.by.bodies)
    failed = [span for span in collected.by.spans if span.status.code == Status.STATUS_CODE_ERROR]
    assert {span.name for span in failed} == {"score", "chat", "POST", "POST /score_steps"}
