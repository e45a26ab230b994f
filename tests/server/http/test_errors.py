"""Every row of the table of errors, provoked over HTTP."""

import json
import re
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import httpx
import pytest

from server.models.model import Model
from server.problem_details import TABLE
from server.routes.route import parse
from tests.fake_engine import FakeEngine, FakeFormat
from tests.server.harness import Background, Running, ask, bearer, boxed, raw, read, serving
from tests.support import PATIENCE, until
from unprm.errors import ModelInvalid, NoAnswer
from unprm.types import Encoded
from unprm.wire import ProblemDetails

JSON = {"Content-Type": "application/json"}


def check(response: httpx.Response, code: str, *pointers: str) -> ProblemDetails:
    """Asserts that it is this problem, about these fields; returns its details."""
    row = TABLE[code]
    assert response.status_code == row.status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    details = ProblemDetails.model_validate_json(response.text)
    assert (details.code, details.status, details.title) == (code, row.status, row.title)
    assert details.type == f"urn:unprm:error:{code}"
    assert details.request_id == response.headers["x-request-id"]
    assert details.detail
    assert [error.pointer for error in details.errors] == list(pointers)
    if code in ("overloaded", "model_unavailable", "shutting_down"):
        assert re.fullmatch(r"[1-9]\d*", response.headers["retry-after"])
    return details


@pytest.mark.parametrize(
    ("body", "pointers"),
    [
        ({}, ["/solutions"]),
        ({"problem": "p"}, ["/solutions"]),
        ({"problem": "p", "solutions": []}, ["/solutions"]),
        ({"problem": " ", "solutions": ["a"]}, ["/problem"]),
        ({"solutions": ["a"]}, [""]),
        ({"solutions": [{"steps": ["a"], "step_scores": [0.5]}, "b"]}, [""]),
        (ask("a", more=1), ["/more"]),
        (ask("a", alpha=0.5), ["/alpha"]),
        (ask("a", aggregate="max"), ["/aggregate"]),
        (ask("a", threshold=1.5), ["/threshold"]),
        (ask("a", threshold="0.5"), ["/threshold"]),
        (ask("a", []), ["/solutions/1"]),
        (ask(["a", " "]), ["/solutions/0/1"]),
        (ask(["a", 7]), ["/solutions/0/1"]),
        (ask(7), ["/solutions/0"]),
        (ask(None), ["/solutions/0"]),
        (ask({}), ["/solutions/0"]),
        (ask({"text": "a", "steps": ["a"]}), ["/solutions/0"]),
        (ask({"steps": []}), ["/solutions/0/steps"]),
        (ask({"steps": ["a", ""]}), ["/solutions/0/steps/1"]),
        (ask({"text": "a", "x/y~z": 1}), ["/solutions/0/x~1y~0z"]),
        (ask({"text": "a", "step_scores": [0.1, 0.2]}), ["/solutions/0"]),
        (ask({"text": "a\nb", "step_scores": [0.1]}), ["/solutions/0"]),
        (ask({"text": "a\nb", "step_scores": [0.1, 0.2]}, split="paragraph"), ["/solutions/0"]),
        (ask({"text": " ", "step_scores": [0.1]}), ["/solutions/0"]),
        (ask({"steps": ["a"], "step_scores": [0.1, 0.2]}), ["/solutions/0"]),
        (ask({"steps": ["a"], "step_scores": []}), ["/solutions/0/step_scores"]),
        (ask("a", split="word"), ["/split"]),
        (ask("a", extraction="guess"), ["/extraction"]),
        (ask("a", on_invalid="drop"), ["/on_invalid"]),
        (ask("a", normalization="share"), ["/normalization"]),
        (ask({"steps": ["a", "b"], "step_scores": [0.1, 1.1]}), ["/solutions/0/step_scores/1"]),
        (ask({"steps": ["a"], "step_scores": ["0.5"]}), ["/solutions/0/step_scores/0"]),
        (ask({"steps": ["a"], "step_scores": [True]}), ["/solutions/0/step_scores/0"]),
        (ask({"steps": ["a"], "step_scores": [None]}), ["/solutions/0/step_scores/0"]),
        (ask(["a", 7], 7, {"id": 7, "text": "a"}), ["/solutions/0/1", "/solutions/1", "/solutions/2/id"]),
        ([], [""]),
        ("text", [""]),
        (None, [""]),
    ],
)
def test_invalid_request_points_at_the_fields(server: Running, body: Any, pointers: list[str]) -> None:
    """The sentence names the first of them, too: OpenAI's clients show nothing else."""
    response = server.http.post("/score_steps", content=json.dumps(body), headers=JSON)
    said = check(response, "invalid_request", *pointers).detail
    assert pointers[0] in said or "solution 0" in said


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999", "-0.1", "1" + "0" * 400])
def test_numbers_outside_of_the_range_are_invalid(server: Running, number: str) -> None:
    score = f'{{"solutions": [{{"steps": ["a"], "step_scores": [{number}]}}]}}'
    check(
        server.http.post("/score_steps", content=score, headers=JSON),
        "invalid_request",
        "/solutions/0/step_scores/0",
    )
    alpha = f'{{"problem": "p", "solutions": ["a"], "alpha": {number}}}'
    check(server.http.post("/vote/wrf", content=alpha, headers=JSON), "invalid_request", "/alpha")


def test_errors_are_counted_but_not_all_listed(server: Running) -> None:
    details = check(
        server.post("/score_steps", ask(*range(100))),
        "invalid_request",
        *[f"/solutions/{n}" for n in range(16)],
    )
    assert details.detail.startswith("100 errors")


def test_a_field_name_is_the_callers_text_and_is_cut(server: Running) -> None:
    check(server.post("/score_steps", ask("a", **{"x" * 100_000: 1})), "invalid_request", "/" + "x" * 64)


@pytest.mark.parametrize("path", ["/vote/majority", "/vote/prm", "/vote/hmr", "/vote/weighted", "/score_steps"])
def test_alpha_belongs_to_wrf_alone(server: Running, path: str) -> None:
    check(server.post(path, ask("a", alpha=0.5)), "invalid_request", "/alpha")


@pytest.mark.parametrize(
    ("solution", "pointer"),
    [
        (["a", ""], "/solution/1"),
        ({"steps": [1]}, "/solution/steps/0"),
        ({"a": 1}, "/solution/a"),
    ],
)
def test_preview_points_at_its_one_solution(server: Running, solution: Any, pointer: str) -> None:
    check(server.post("/preview", {"problem": "p", "solution": solution}), "invalid_request", pointer)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"   ",
        b"{",
        b"{} x",
        b"{'a': 1}",
        b'{"problem": "\xff"}',
        b'\xef\xbb\xbf{"problem": "p"}',
        '{"problem": "p"}'.encode("utf-16"),
        rb'{"problem": "p", "solutions": ["\ud800"]}',
        rb'{"problem": "p", "solutions": ["a"], "\udfff": 1}',
        rb'{"problem": "\ude00\ud83d", "solutions": ["a"]}',
        b'{"problem": "\xed\xa0\x80", "solutions": ["a"]}',
        b"[" * 4096 + b"]" * 4096,
        b'{"problem":' * 4096 + b"1" + b"}" * 4096,
        b"[" * 1_000_000,
        b'{"a": ' + b"9" * 10_000 + b"}",
    ],
)
def test_malformed_json(server: Running, body: bytes) -> None:
    check(server.http.post("/score_steps", content=body, headers=JSON), "malformed_json")


def test_json_may_repeat_a_field_and_name_its_encoding(server: Running) -> None:
    body = '{"problem": 1, "problem": "p", "solutions": ["\\ud83d\\ude00 ä"]}'.encode()
    for media_type in ("application/json", "application/json; charset=utf-8", "Application/JSON"):
        response = server.http.post("/score_steps", content=body, headers={"Content-Type": media_type})
        assert response.json()["solutions"][0]["steps"] == ["😀 ä"]


@pytest.mark.parametrize(
    "headers", [{}, {"Content-Type": "text/plain"}, {"Content-Type": "application/x-www-form-urlencoded"}]
)
def test_unsupported_media_type(server: Running, headers: dict[str, str]) -> None:
    body = json.dumps(ask("a")).encode()
    check(server.http.post("/score_steps", content=body, headers=headers), "unsupported_media_type")


def test_too_many_solutions(server: Running) -> None:
    details = check(server.post("/vote/majority", ask(*["a"] * 257)), "too_many_solutions", "/solutions")
    assert "257" in details.detail
    assert "256" in details.detail
    assert server.post("/score_steps", ask(*["a"] * 256)).status_code == 200


def test_too_many_solutions_are_refused_before_they_cost_time(server: Running) -> None:
    body = b'{"problem": "p", "solutions": [' + b",".join([b"1"] * 1_000_000) + b"]}"
    response = server.http.post("/score_steps", content=body, headers=JSON)
    check(response, "too_many_solutions", "/solutions")  # and not a million times invalid


STRICT = {"on_invalid": "refuse"}


@pytest.mark.parametrize(
    ("path", "body", "pointer"),
    [
        ("/score_steps", ask("a", ["b"] * 1025, **STRICT), "/solutions/1"),
        ("/score_steps", ask(["b"] * 1025, ["b"] * 1025), "/solutions/0"),
        ("/vote/majority", ask("a", {"steps": ["b"] * 1025, "step_scores": [0.5] * 1025}, **STRICT), "/solutions/1"),
        ("/vote/wrf", ask("a", "b\n\n" * 1025, **STRICT), "/solutions/1"),
        ("/preview", {"problem": "p", "solution": ["b"] * 1025}, "/solution"),
    ],
)
def test_too_many_steps(server: Running, path: str, body: Any, pointer: str) -> None:
    details = check(server.post(path, body), "too_many_steps", pointer)
    assert "has more than 1024 steps" in details.detail


@pytest.mark.parametrize(
    ("path", "body", "pointer"),
    [
        ("/score_steps", ask("a", "  \n", "", **STRICT), "/solutions/1"),
        ("/score_steps", ask("\x1c\x1d", {"text": ""}), "/solutions/0"),
        ("/vote/majority", ask(boxed(1), {"text": " ", "answer": "1"}, **STRICT), "/solutions/1"),
        ("/preview", {"problem": "p", "solution": ""}, "/solution"),
    ],
)
def test_blank_solutions(server: Running, path: str, body: Any, pointer: str) -> None:
    check(server.post(path, body), "blank", pointer)


def test_steps_beyond_the_limit_are_one_text_before_they_are_validated() -> None:
    body = json.dumps(ask(list("abcdef"), {"steps": list("abcd"), "step_scores": [0.5] * 4}, list("abc"))).encode()
    parsed = parse(body, max_solutions=3, max_steps=3)
    assert isinstance(parsed, dict)
    assert parsed["solutions"] == [
        ["a", "b", "c", "d\n\ne\n\nf"],
        {"steps": ["a", "b", "c", "d"], "step_scores": None},
        ["a", "b", "c"],
    ]


def test_scores_of_a_solution_with_too_many_steps_do_not_count(server: Running) -> None:
    many = {"text": "b\n\n" * 2000, "step_scores": [0.5] * 2000}
    first, second = server.post("/score_steps", ask(many, "a")).json()["solutions"]
    assert (first["step_scores"], first["reward"], first["unscored"]["code"]) == (None, None, "too_many_steps")
    assert second["reward"] is not None


def test_as_many_steps_as_the_limit(server: Running) -> None:
    scored = {"steps": ["b"] * 1024, "step_scores": [0.5] * 1024}
    assert len(server.post("/score_steps", ask(scored)).json()["solutions"][0]["steps"]) == 1024


@pytest.mark.parametrize(
    ("body", "detail"),
    [
        ({f"f{number}": 1 for number in range(100_000)}, "an object has 100000 fields"),
        (ask({f"f{number}": 1 for number in range(100_000)}), "an object has 100000 fields"),
        (ask(dict.fromkeys(map(str, range(100)))), "an object has 100 fields"),
        ({"trajectories": [dict.fromkeys(map(str, range(100)))]}, "an object has 100 fields"),
        (ask([1] * 1000), "/solutions/0/0: Input should be a valid string"),
        (ask({"steps": ["a"], "step_scores": ["x"] * 1_000_000}), "/step_scores/0: Input should be a valid number"),
    ],
)
def test_a_million_errors_are_not_made_out(server: Running, body: Any, detail: str) -> None:
    details = ProblemDetails.model_validate_json(server.post("/score_steps", body).text)
    assert details.code == "invalid_request"
    assert detail in details.detail
    assert len(details.errors) <= 1


def test_solution_too_long_names_it(server: Running) -> None:
    long = "é" * 1100
    tokens = len(read(long).ids)
    solutions = [{"steps": ["a"], "step_scores": [0.5]}, "b", long, long]
    for path in ("/score_steps", "/vote/prm"):
        answered = [
            {"text": text, "answer": str(n)} if isinstance(text, str) else text for n, text in enumerate(solutions)
        ]
        details = check(server.post(path, ask(*answered, **STRICT)), "solution_too_long", "/solutions/2")
        assert f"solution 2 with its problem takes {tokens} tokens, the limit is 2048" in details.detail
    check(server.post("/preview", {"problem": "p", "solution": long}), "solution_too_long", "/solution")
    details = check(server.post("/score_steps", ask("x" * 2100)), "solution_too_long", "/solutions/0")
    assert "solution 0 with its problem takes at least 2109 tokens, the limit is 2048" in details.detail


def test_nothing_of_a_request_with_a_too_long_solution_runs(server: Running, engine: FakeEngine) -> None:
    before = len(engine.batches)
    check(server.post("/score_steps", ask("b", "x" * 2100, **STRICT)), "solution_too_long", "/solutions/1")
    check(server.post("/score_steps", ask("x" * 2100, "x" * 2100)), "solution_too_long", "/solutions/0")
    assert len(engine.batches) == before


def test_hmr_without_a_majority_needs_the_problem_or_scores(server: Running) -> None:
    solutions = [{"steps": ["s"], "answer": "1"}, {"steps": ["s"], "answer": "2"}]
    details = check(server.post("/vote/hmr", {"solutions": solutions}), "invalid_request", "/problem")
    assert "rewards decide" in details.detail
    scored = [{**solution, "step_scores": [0.5]} for solution in solutions]
    assert server.post("/vote/hmr", {"solutions": scored}).json()["decided_by"] == "reward"


@pytest.mark.parametrize("strategy", ["majority", "cisc", "compare"])
def test_no_answer(server: Running, strategy: str) -> None:
    solutions = ["I don't know.", {"text": "\\boxed{1}", "answer": " "}]
    details = check(server.post(f"/vote/{strategy}", ask(*solutions)), "no_answer", "/solutions")
    assert details.detail == str(NoAnswer(2))
    assert "take a vote like `prm`" in details.detail
    without = check(server.post("/vote/hmr", {"solutions": solutions}), "no_answer", "/solutions")
    assert without.detail == details.detail
    assert "\\boxed{…}" in details.detail
    assert "`extraction`" in details.detail


def test_unknown_address_and_wrong_method(server: Running) -> None:
    for path in ("/nowhere", "/vote/best", "/vote/prm/", "/vote/%2e%2e/model"):
        check(server.post(path, {}), "not_found")
    assert "expected one of majority, prm, hmr, wrf, " in server.post("/vote/wfr", {}).json()["detail"]
    assert "(did you mean wrf?)" in server.post("/vote/wrff", {}).json()["detail"]
    nothing = "nothing is served at this path; /docs lists what is"
    assert server.post("/nowhere", {}).json()["detail"] == nothing
    assert server.post("/scores", {}).json()["detail"] == f"{nothing} (did you mean /score or /score_steps?)"
    response = server.get("/score_steps")
    assert check(response, "method_not_allowed").detail == "expected POST, got GET"
    assert response.headers["allow"] == "POST"
    assert check(server.http.delete("/model"), "method_not_allowed").detail == "expected GET, got DELETE"


@pytest.mark.parametrize(
    ("path", "meant"),
    [
        ("/chat/completions", "/v1/chat/completions"),
        ("/v1/v1/messages", "/v1/messages"),
        ("/v1/chat/completions/", "/v1/chat/completions"),
        ("/openai/deployments/d/chat/completions", "/v1/chat/completions"),
        ("/models", "/v1/models"),
    ],
)
def test_a_base_url_that_misses_the_api_is_told(path: str, meant: str) -> None:
    with serving(upstream_url="http://127.0.0.1:9") as running:
        assert f"expected {meant}: the base URL" in running.post(path, {}).json()["error"]["message"]
        assert "expected /v1/chat/completions, /v1/completions" in running.post("/v1/embeddings", {}).json()["detail"]


def test_what_an_option_adds_says_which(server: Running) -> None:
    for path in ("/v1/chat/completions", "/v1/messages/count_tokens"):
        assert "start the server with --upstream-url" in server.post(path, {}).json()["detail"]
    for path in ("/admin/models", "/admin/models/name"):
        assert "start the server with --admin-key" in check(server.get(path), "not_found").detail
    assert "--" not in check(server.get("/administration"), "not_found").detail


def test_an_option_that_is_set_is_not_asked_for() -> None:
    admin = bearer("CANARY")
    with serving(open_model=lambda request: FakeEngine(), admin_key="CANARY") as running:
        response = running.http.put("/admin/models", headers=admin)
        assert check(response, "method_not_allowed").detail == "expected GET, POST, got PUT"
        assert "--" not in check(running.get("/admin/others", headers=admin), "not_found").detail


def test_a_vote_named_in_the_body_is_told_its_endpoint(server: Running) -> None:
    details = check(server.post("/vote", ask("a", strategy="hmr")), "invalid_request", "/strategy")
    assert "POST /vote/hmr" in details.detail


def test_body_too_large_is_refused_unread_if_it_says_so() -> None:
    with serving(max_body_bytes=1000) as server:
        details = check(server.post("/score_steps", ask("x" * 1001)), "body_too_large")
        assert "the limit is 1000" in details.detail
        with server.connect(raw(None, length=9_999_999)) as connection:
            assert b"413" in connection.recv(1000).splitlines()[0]
        assert server.post("/score_steps", ask("x" * 900)).status_code == 200


@pytest.mark.parametrize("size", [100, 20_000])
def test_body_too_large_is_found_while_it_comes_in_chunks(size: int) -> None:
    """Also in one that is beyond the caller's share, too."""
    with serving(max_body_bytes=1000) as server:
        chunks = (b"x" * size for _ in range(200))
        check(server.http.post("/score_steps", content=chunks, headers=JSON), "body_too_large")
        assert server.post("/score_steps", ask("a")).status_code == 200


@pytest.fixture(scope="module")
def locked() -> Iterator[Running]:
    with serving(api_key="sésame") as running:
        yield running


@pytest.mark.parametrize("sent", [None, "Bearer wrong", "Bearer", "Basic sésame", "sésame", "Bearer sésam"])
def test_unauthorized(locked: Running, sent: str | None) -> None:
    headers = {} if sent is None else {b"Authorization": sent.encode()}
    for method, path in (
        ("POST", "/score_steps"),
        ("POST", "/vote/wrf"),
        ("GET", "/model"),
        ("GET", "/metrics"),
        ("GET", "/x"),
    ):
        response = locked.http.request(method, path, headers=headers)
        check(response, "unauthorized")
        assert response.headers["www-authenticate"] == "Bearer"


def test_the_key_opens_and_probes_and_documentation_need_none(locked: Running) -> None:
    for scheme in ("Bearer", "bearer"):
        headers = {b"Authorization": f"{scheme} sésame".encode()}
        assert locked.post("/score_steps", ask("a"), headers=headers).status_code == 200
        assert locked.get("/metrics", headers=headers).status_code == 200
    for path in ("/health", "/healthz", "/readyz", "/version", "/docs", "/openapi.json"):
        assert locked.get(path).status_code == 200


def test_version_and_health_are_where_other_servers_have_them(server: Running) -> None:
    assert server.get("/health").json() == {"status": "ok"}
    assert server.get("/version").json() == {"version": server.get("/openapi.json").json()["info"]["version"]}


def test_another_site_is_refused_where_no_key_is_asked_for(server: Running, locked: Running) -> None:
    foreign, key = {"Host": "rebinding.example:8000"}, {b"Authorization": "Bearer sésame".encode()}
    for method, path in (("POST", "/score_steps"), ("GET", "/model"), ("GET", "/metrics"), ("GET", "/x")):
        check(server.http.request(method, path, json=ask("a"), headers=foreign), "foreign_site")
    with_key = {name.encode(): value.encode() for name, value in foreign.items()} | key
    assert locked.post("/score_steps", ask("a"), headers=with_key).status_code == 200
    assert server.get("/healthz", headers=foreign).status_code == 200


def test_a_server_that_others_can_reach_without_a_key_says_so(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "server.serving")
    everywhere: dict[str, Any] = {"host": "0.0.0.0"}
    for options, warned in ((everywhere, True), (everywhere | {"api_key": "k"}, False), ({}, False)):
        caplog.clear()
        with serving(**options) as running:
            until(lambda running=running: running.get("/readyz").status_code == 200)  # type: ignore[misc]
            if warned:
                until(lambda: "ready: " in caplog.text)
                said = [record.message for record in caplog.records if not record.message.startswith("request ")]
                assert "anyone who can reach 0.0.0.0" in said[-2]
                assert said[-1].startswith("ready: ")
        assert ("it has no key" in caplog.text) == warned


def test_overloaded_runs_nothing_and_says_when_to_come_back() -> None:
    gate = threading.Event()
    engine = FakeEngine(gate=gate)
    with serving(engine, max_queued_tokens=100) as server:
        running = Background(lambda: server.post("/score_steps", ask("running")))
        until(lambda: len(engine.batches) == 1)
        waiting = Background(lambda: server.post("/score_steps", ask("w" * 120)))
        until(lambda: server.metric("unprm_queued_requests") == 1)
        check(server.post("/score_steps", ask("refused", "refused too")), "overloaded")
        assert server.get("/readyz").status_code == 200  # or who fills the queue takes the server away from others
        until(lambda: server.metric("unprm_queued_tokens") == len(read("w" * 120).ids))
        gate.set()
        assert running.result().status_code == waiting.result().status_code == 200
    assert [batch for batch in engine.batches if read("refused") in batch] == []


def test_what_a_queue_has_no_room_for_is_refused_before_it_is_encoded() -> None:
    """By an estimate from the characters; solutions with scores take no room."""
    encoded: list[str] = []

    class Format(FakeFormat):
        def encode(self, problem: str, steps: Sequence[str]) -> Encoded:
            encoded.append(steps[0])
            return super().encode(problem, steps)

    gate = threading.Event()
    engine = FakeEngine(gate=gate)
    engine.format = Format()
    with serving(engine, max_queued_tokens=200) as server:
        running = Background(lambda: server.post("/score_steps", ask("running")))
        until(lambda: len(engine.batches) == 1)
        waiting = Background(lambda: server.post("/score_steps", ask("w" * 60)))
        until(lambda: server.metric("unprm_queued_requests") == 1)
        for path in ("/score_steps", "/vote/prm"):
            check(server.post(path, ask("r" * 400 + "\\boxed{1}", "\\boxed{2}")), "overloaded")
        given = {"text": "g" * 400, "step_scores": [0.5]}
        taken = Background(lambda: server.post("/score_steps", ask(given, "t")))
        until(lambda: "t" in encoded)
        gate.set()
        for call in (running, waiting, taken):
            assert call.result().status_code == 200
    assert encoded == ["running", "w" * 60, "t"]


def test_what_was_let_in_by_an_estimate_is_not_refused_once_it_is_encoded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Model, "PIECE", 1)  # so that two are encoded at the same time
    gate, both = threading.Event(), threading.Barrier(2)

    class Format(FakeFormat):
        """A token for four characters, and more for those that come late."""

        def encode(self, problem: str, steps: Sequence[str]) -> Encoded:
            (text,) = steps
            late = text.startswith("late")
            if late:
                both.wait(PATIENCE)
            length = round((0.4 if late else 0.25) * len(problem + text))
            return Encoded((*text.encode()[:5], *[0] * (length - 5)), (length - 1,))

    engine = FakeEngine(gate=gate)
    engine.format = Format()
    with serving(engine, max_queued_tokens=180) as server:
        running = Background(lambda: server.post("/score_steps", ask("r" * 31)))
        until(lambda: len(engine.batches) == 1)
        waiting = Background(lambda: server.post("/score_steps", ask("w" * 191)))
        until(lambda: server.metric("unprm_queued_tokens") == 50)
        texts = [f"late{number}" + "x" * 66 for number in range(2)]
        late = [Background(lambda text=text: server.post("/score_steps", ask(text))) for text in texts]  # type: ignore[misc]
        until(lambda: server.metric("unprm_queued_tokens") == 114)  # 90 by the estimate
        gate.set()
        for call in (running, waiting, *late):
            assert call.result().status_code == 200


@pytest.mark.parametrize("seconds", ["0", "-1", "nan", "inf", "1e999", "soon", "1,5", ""])
def test_a_time_out_has_to_be_a_positive_number(server: Running, seconds: str) -> None:
    response = server.post("/score_steps", ask("a"), headers={"X-Request-Timeout": seconds})
    assert "X-Request-Timeout" in check(response, "invalid_request").detail


def test_deadline_exceeded_by_the_callers_time_and_the_servers() -> None:
    gate = threading.Event()
    engine = FakeEngine(gate=gate)
    with serving(engine, max_request_seconds=0.3) as server:
        for sent, seconds in (("0.1", "0.1"), ("100", "0.3"), (None, "0.3")):
            headers = {} if sent is None else {"X-Request-Timeout": sent}
            response = server.post("/score_steps", ask(f"late {sent}"), headers=headers)
            details = check(response, "deadline_exceeded")
            assert details.detail.startswith(f"the request was not answered within {seconds} s; ")
            assert "--max-request-seconds" in details.detail
        assert server.metric("unprm_queued_requests") == 0
        gate.set()
        assert server.post("/score_steps", ask("in time")).status_code == 200
    ran = {item for batch in engine.batches for item in batch}
    assert ran == {read("late 0.1"), read("in time")}


def test_model_unavailable_while_it_is_loaded() -> None:
    gate = threading.Event()

    def load() -> FakeEngine:
        gate.wait()
        return FakeEngine()

    with serving(load, model=["/secret/place"]) as server:
        assert server.get("/healthz").status_code == 200
        refused = [server.get(path) for path in ("/readyz", "/health", "/model")]
        for response in (*refused, server.post("/score_steps", ask("a"))):
            assert "being loaded" in check(response, "model_unavailable").detail
        assert server.post("/vote/majority", ask(boxed(1), boxed(2))).json()["model"] == "place"
        gate.set()
        until(lambda: server.get("/readyz").status_code == 200)
        assert server.post("/score_steps", ask("a")).status_code == 200


@pytest.mark.parametrize("error", [ModelInvalid("/secret/place has no weights"), RuntimeError("secret")])
def test_model_unavailable_after_it_could_not_be_loaded(error: Exception) -> None:
    def load() -> FakeEngine:
        raise error

    with serving(load) as server:
        until(lambda: "could not" in server.get("/readyz").text)
        details = check(server.post("/score_steps", ask("a")), "model_unavailable")
        assert "secret" not in details.detail


def test_model_unavailable_when_it_fails_on_a_request() -> None:
    with serving(FakeEngine(failures={0: RuntimeError("secret")})) as server:
        response = server.post("/score_steps", ask("a"))
        check(response, "model_unavailable")
        assert "secret" not in response.text
        assert server.post("/score_steps", ask("a")).status_code == 200


def test_internal_tells_nothing() -> None:
    class BrokenFormat(FakeFormat):
        def encode(self, problem: str, steps: Sequence[str]) -> Encoded:
            raise KeyError(f"secret {steps}")

    engine = FakeEngine()
    engine.format = BrokenFormat()
    with serving(engine) as server:
        response = server.post("/score_steps", ask("a"), headers={"X-Request-ID": "broken-1"})
        assert check(response, "internal").request_id == "broken-1"
        assert "secret" not in response.text
        assert "KeyError" not in response.text
        assert server.post("/vote/majority", ask(boxed(1), boxed(2))).status_code == 200
