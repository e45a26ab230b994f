"""Traces: a span for each part of a request, sent to a collector, within the caller's trace, without its words."""

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.server.harness import ask, boxed
from tests.server.processes import process

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"


class _Collector(BaseHTTPRequestHandler):
    bodies: list[bytes] = []  # noqa: RUF012  # of the one collector there is

    def do_POST(self) -> None:
        assert self.path == "/v1/traces"
        self.bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *arguments: object) -> None:
        pass


@pytest.fixture
def collector():
    with ThreadingHTTPServer(("127.0.0.1", 0), _Collector) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_a_request_is_traced_with_its_parts(tmp_path: Path, collector: str) -> None:
    with process(tmp_path / "log", f"--otlp-endpoint={collector}") as server:
        server.http.post("/score_steps", json=ask("the first batch fails"))
        headers = {"traceparent": f"00-{TRACE}-00f067aa0ba902b7-01"}
        response = server.http.post("/vote/wrf", json=ask(boxed("CANARY"), boxed(2)), headers=headers)
        assert response.status_code == 200
        assert server.end() == 0
    spans = [
        span
        for body in _Collector.bodies
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    ]
    traced = {span.name: span for span in spans if span.trace_id.hex() == TRACE}
    assert set(traced) == {"request", "answers", "encode", "score"}
    assert traced["request"].parent_span_id.hex() == "00f067aa0ba902b7"
    assert {span.parent_span_id for name, span in traced.items() if name != "request"} == {traced["request"].span_id}
    attributes = {attribute.key: attribute.value for attribute in traced["request"].attributes}
    assert (attributes["route"].string_value, attributes["status"].int_value) == ("/vote/wrf", 200)
    assert attributes["computed_tokens"].int_value > 0
    (event,) = traced["request"].events
    assert event.name == "gen_ai.evaluation.result"
    found = {attribute.key.removeprefix("gen_ai.evaluation."): attribute.value for attribute in event.attributes}
    assert set(found) == {"name", "score.label", "score.value"}
    assert (found["name"].string_value, found["score.label"].string_value) == ("wrf", "combined")
    assert found["score.value"].double_value == response.json()["candidates"][0]["score"]
    assert all(b"CANARY" not in body for body in _Collector.bodies)
