"""Traces: a span for each part of a request and for each call, sent to a collector, within the caller's trace, without
its words."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from tests.fakes import COMPLETION_TOKENS, PROMPT_TOKENS, Upstream, upstream
from tests.server.harness import ask, boxed
from tests.server.processes import Process, process

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
CALLER = "00f067aa0ba902b7"


class _Collector(BaseHTTPRequestHandler):
    bodies: list[tuple[str, bytes]] = []  # noqa: RUF012  # of the one collector there is

    def do_POST(self) -> None:
        self.bodies.append((self.path, self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *arguments: object) -> None:
        pass


@pytest.fixture(scope="module")
def collected(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Any, Any, Upstream]]:
    """The answers to a vote and to a chat in one trace, and the upstream, when all is collected."""
    texts = [r"CANARY \boxed{7}", r"CANARY \boxed{7}"]
    with ThreadingHTTPServer(("127.0.0.1", 0), _Collector) as server, upstream(*texts) as reasoner:
        reasoner.for_problem["silence"] = ["I can't tell, CANARY.", "I am not sure, CANARY."]
        threading.Thread(target=server.serve_forever, daemon=True).start()
        options = f"--otlp-endpoint=http://127.0.0.1:{server.server_port}", f"--upstream-url={reasoner.url}"
        with process(tmp_path_factory.mktemp("traced") / "log", *options) as running:
            vote, chat = _ask(running)
            assert running.end() == 0
        server.shutdown()
        yield vote, chat, reasoner


def _ask(server: Process) -> tuple[Any, Any]:
    server.http.post("/score_steps", json=ask("the first batch fails"))
    headers = {"traceparent": f"00-{TRACE}-{CALLER}-01", "user-agent": "CANARY", "baggage": "CANARY=1"}
    vote = server.http.post("/vote/wrf?CANARY=1", json=ask(boxed("CANARY"), boxed(2)), headers=headers)
    body = {"model": "m/1", "messages": [{"role": "user", "content": "CANARY"}], "unprm": {"budget": 2, "round": 2}}
    chat = server.http.post("/v1/chat/completions", json=body, headers=headers)
    assert (vote.status_code, chat.status_code) == (200, 200)
    silent = body | {"model": "the CANARY", "messages": [{"role": "user", "content": "silence"}]}
    server.http.post("/v1/chat/completions", json=silent)
    server.http.post("/CANARY", headers={"traceparent": "CANARY"})
    server.http.get("/healthz", headers=[(b"traceparent", b"\xff\\x"), (b"host", b"127.0.0.1"), (b"x", b"\xff\\x")])
    return vote.json(), chat.json()


def _spans() -> list[Span]:
    return [
        span
        for path, body in _Collector.bodies
        if path == "/v1/traces"
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    ]


def _traced(root: str) -> tuple[Span, dict[str, Span]]:
    """A request's span, and those below it by their names."""
    spans = [span for span in _spans() if span.trace_id.hex() == TRACE]
    (request,) = (span for span in spans if span.name == root)
    below, parents = dict[str, Span](), {request.span_id}
    while found := [span for span in spans if span.parent_span_id in parents and span.name not in below]:
        below |= {span.name: span for span in found}
        parents |= {span.span_id for span in found}
    return request, below


def _values(attributes: Any) -> dict[str, Any]:
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in attributes}


def test_a_request_is_traced_with_its_parts(collected: Any) -> None:
    request, below = _traced("POST /vote/wrf")
    assert (request.kind, request.parent_span_id.hex()) == (Span.SPAN_KIND_SERVER, CALLER)
    assert set(below) == {"answers", "encode", "score"}
    assert {span.parent_span_id for span in below.values()} == {request.span_id}
    attributes = _values(request.attributes)
    assert attributes["http.request.method"] == "POST"
    assert (attributes["http.route"], attributes["http.response.status_code"]) == ("/vote/wrf", 200)
    assert attributes["computed_tokens"] > 0


def test_the_trace_goes_on_at_the_upstream(collected: Any) -> None:
    _, chat, reasoner = collected
    request, below = _traced("POST /v1/chat/completions")
    generation, call = below["chat"], below["POST"]
    assert [generation.parent_span_id, call.parent_span_id] == [request.span_id, generation.span_id]
    assert {generation.kind, call.kind} == {Span.SPAN_KIND_CLIENT}
    assert reasoner.traces[0] == f"00-{TRACE}-{call.span_id.hex()}-01"
    assert _values(call.attributes)["http.response.status_code"] == 200
    made, told = _values(generation.attributes), _values(request.attributes)
    assert (made["gen_ai.request.model"], made["gen_ai.response.model"]) == ("m/1", "m/1-served")
    assert (made["gen_ai.response.id"], told["gen_ai.response.id"]) == ("x", chat["id"])
    assert made["gen_ai.usage.input_tokens"] == told["gen_ai.usage.input_tokens"] == PROMPT_TOKENS
    assert made["gen_ai.usage.output_tokens"] == told["gen_ai.usage.output_tokens"] == 2 * COMPLETION_TOKENS


def test_an_elected_answer_is_an_event(collected: Any) -> None:
    vote, chat, _ = collected
    records = [
        record
        for path, body in _Collector.bodies
        if path == "/v1/logs"
        for resource in ExportLogsServiceRequest.FromString(body).resource_logs
        for scope in resource.scope_logs
        for record in scope.log_records
    ]
    assert {record.event_name for record in records} == {"gen_ai.evaluation.result"}
    by_span = {record.span_id: _values(record.attributes) for record in records}
    voted = by_span[_traced("POST /vote/wrf")[0].span_id]
    assert (voted["gen_ai.evaluation.name"], voted["gen_ai.evaluation.score.label"]) == ("wrf", "combined")
    assert voted["gen_ai.evaluation.score.value"] == vote["candidates"][0]["score"]
    elected = by_span[_traced("POST /v1/chat/completions")[0].span_id]
    assert elected["gen_ai.response.id"] == chat["id"]
    assert elected["gen_ai.evaluation.name"] == chat["unprm"]["strategy"]
    fallback = [_values(each.attributes)["gen_ai.evaluation.score.label"] for each in records]
    assert sorted(fallback) == ["combined", "none", "unanimous"]


def test_nothing_that_a_caller_wrote_is_sent(collected: Any) -> None:
    assert {"POST unmatched", "GET /healthz"} <= {span.name for span in _spans()}
    assert all(b"CANARY" not in body for _, body in _Collector.bodies)
