"""A question to the model behind the gateway: its candidates are written, scored, and vote."""

import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Route, expect

from tests.browser.harness import Sheet, flaws
from tests.fake_engine import FakeEngine
from tests.fakes import upstream
from tests.server.harness import Running, serving
from unprm.votes.registry import REWARD_STRATEGIES

# a stream of which the test says each event
STREAM = """
const real = window.fetch;
window.fetch = (address, options) => {
  if (address !== "v1/chat/completions") return real(address, options);
  window.sentBody = JSON.parse(options.body);
  const body = new ReadableStream({ start: (controller) => { window.events = controller; } });
  options.signal.addEventListener("abort", () => { window.ended = true; window.events.error(options.signal.reason); });
  return Promise.resolve(new Response(body));
};
"""
SEND = "text => window.events.enqueue(new TextEncoder().encode(text))"
CUT = "1 of 3 candidates was truncated at max_tokens=9"
REPORT = {"strategy": "weighted", "budget": 8, "sampled": 3, "answer": "8", "notes": [CUT]}


@pytest.fixture(scope="module")
def gateway() -> Iterator[Running]:
    """A server before an upstream, of which an answer has at most 12 candidates."""
    with upstream() as reasoner, serving(FakeEngine(), upstream_url=reasoner.url, gateway_budget=12) as running:
        yield running


@pytest.fixture(params=[(1280, 800), (390, 844)], ids=["desktop", "phone"])
def asking(request: pytest.FixtureRequest, browser: Browser, gateway: Running) -> Iterator[Sheet]:
    """The page, on which a question was asked."""
    width, height = request.param
    context = browser.new_context(viewport={"width": width, "height": height}, reduced_motion="reduce")
    context.add_init_script(STREAM)
    sheet = Sheet(context.new_page(), gateway.url).open()
    expect(sheet.page.get_by_label("Model to ask")).to_have_value("reasoner")
    sheet.page.get_by_label("Problem", exact=True).fill("What is 3 + 5?")
    sheet.press("Ask")
    expect(sheet.page.locator("#status")).to_have_text("Asking reasoner for 8 candidates …")
    yield sheet
    context.close()
    assert sheet.complaints == []
    assert sheet.foreign() == []


def send(sheet: Sheet, *events: dict[str, Any] | str) -> None:
    """Sends what the gateway says: what is in `unprm` of a chunk, or a line as it is."""
    for event in events:
        chunk = {"choices": [{"index": 0, "delta": {}, "finish_reason": None}], "unprm": event}
        line = event if isinstance(event, str) else f"data: {json.dumps(chunk)}"
        # in two parts, as a network may
        sheet.page.evaluate(SEND, line[:9])
        sheet.page.evaluate(SEND, line[9:] + "\n\n")


def candidate(index: int, answer: int) -> dict[str, Any]:
    text = f"Step 1: of {index}.\n\nStep 2: The answer is \\boxed{{{answer}}}."
    return {"candidate": {"index": index, "text": text, "finish_reason": "stop"}}


def test_candidates_are_scored_as_they_arrive_and_vote(asking: Sheet) -> None:
    page = asking.page

    def by_a_demonstration(route: Route) -> None:
        known = all(isinstance(solution, dict) for solution in route.request.post_data_json["solutions"])
        demonstration = None if known else {"in_domain": True, "detail": "A demonstration scored these."}
        route.fulfill(json=route.fetch().json() | {"demonstration": demonstration})

    page.route("**/score_steps", by_a_demonstration)
    sent = page.evaluate("window.sentBody")
    assert (sent["model"], sent["stream"]) == ("reasoner", True)
    assert sent["unprm"] == {"problem": "What is 3 + 5?", "budget": 8, "show_samples": True}
    assert sent["messages"][-1] == {"role": "user", "content": "What is 3 + 5?"}
    send(asking, ": keep-alive", 'data: {"choices": [{"delta": {"role": "assistant"}}]}', candidate(2, 7))
    expect(page.locator("#solutions .solution")).to_have_count(1)
    expect(page.locator("#solutions .chip")).to_have_count(2)
    expect(page.locator("#winner:visible .answer")).to_have_text("7")
    expect(page.locator(".tile strong")).to_have_text(["7"] * len(REWARD_STRATEGIES))
    expect(page.locator("#winner")).to_be_in_viewport(ratio=1)
    send(asking, candidate(0, 8), {"progress": {"sampled": 2, "budget": 8, "answer": "8"}}, candidate(1, 8))
    expect(page.locator("#solutions .solution")).to_have_count(3)
    expect(page.locator("#status")).to_have_text("2 of 8 candidates: 8 leads.")
    expect(page.locator("#waiting")).to_be_empty()
    assert flaws(page) == []
    send(asking, REPORT, "data: [DONE]")
    expect(page.locator("#status")).to_have_text(f"Of 3 candidates, the gateway elects 8 by weighted; {CUT}.")
    expect(page.locator("#ask")).to_have_text("Ask")
    expect(page.locator("#demonstration")).to_contain_text("Scored by the built-in demo model")
    assert asking.elected("majority") == "8"
    expect(page.locator("input[value=weighted]")).to_be_checked()
    for k, answer in enumerate(["8", "8", "7"]):
        expect(asking.solution(k).locator(".facts .answer")).to_have_text(answer)
    expect(page.locator("#cards textarea")).to_have_count(3)
    expect(page.get_by_label("Candidate solutions")).to_have_value("\n===\n".join(_texts((0, 8), (1, 8), (2, 7))))
    assert flaws(page) == []


def _texts(*candidates: tuple[int, int]) -> list[str]:
    return [candidate(*each)["candidate"]["text"] for each in candidates]


def test_candidates_wait_for_their_scores_in_sight(asking: Sheet) -> None:
    page = asking.page
    held: list[Route] = []

    def hold_first(route: Route) -> None:
        if held:
            route.continue_()
        else:
            held.append(route)

    page.route("**/score_steps", hold_first)
    with page.expect_request("**/score_steps"):
        send(asking, candidate(0, 8))
    expect(page.locator("#waiting")).to_contain_text("being written and scored")
    expect(page.locator("#waiting")).to_contain_text("Step 1: of 0.")
    expect(page.locator("#waiting .solution")).to_be_in_viewport()
    send(asking, candidate(1, 8), candidate(2, 7))
    expect(page.locator("#waiting .solution")).to_have_count(3)
    with page.expect_request("**/score_steps") as second:
        held[0].continue_()
    # one request for all that has arrived meanwhile, with the scores that are known
    assert ["step_scores" in each for each in second.value.post_data_json["solutions"]] == [True, False, False]
    expect(page.locator("#solutions .chip")).to_have_count(6)
    expect(page.locator("#waiting")).to_be_empty()


def test_candidates_are_shown_while_they_are_written(asking: Sheet) -> None:
    page, drafts = asking.page, asking.page.locator("#waiting .solution")
    send(asking, piece(0, "Step 1: <b>of"), piece(3, "Hm"), piece(0, "</b> 0.\n\nStep 2: "))
    expect(drafts).to_have_count(2)
    expect(drafts.first.locator(".words")).to_have_text("Step 1: <b>of</b> 0.\n\nStep 2: ")
    assert page.locator("#waiting").evaluate("node => node.closest('[aria-live], [role=status], [role=alert]')") is None
    assert flaws(page) == []
    send(asking, piece(3, ""), piece(1, "Step"))  # one that fails, and another
    expect(drafts.locator(".words")).to_have_text(["Step 1: <b>of</b> 0.\n\nStep 2: ", "Step"])
    send(asking, piece(1, ""), piece(1, "So"), candidate(0, 8))
    expect(page.locator("#solutions .solution")).to_have_count(1)
    expect(drafts.locator(".words")).to_have_text(["So"])
    asking.press("Stop")
    expect(page.locator("#status")).to_have_text("1 candidate had arrived.")
    expect(drafts).to_have_count(0)


def piece(candidate: int, text: str) -> dict[str, Any]:
    return {"piece": {"candidate": candidate, "text": text}}


def test_steps_are_scored_as_they_end(browser: Browser) -> None:
    more, texts = threading.Event(), ["Step 1: so.\n\nStep 2: the end of it.\n\nThe answer is \\boxed{7}."]
    page = browser.new_page()

    def holds_the_model(route: Route) -> None:
        route.fulfill(json=route.fetch().json() | {"memory": {}})

    page.route("**/model", holds_the_model)
    with (
        upstream(*texts, paused={0: more}) as reasoner,
        serving(FakeEngine(), upstream_url=reasoner.url) as running,
    ):
        sheet = Sheet(page, running.url).open()
        page.get_by_label("Problem", exact=True).fill("What is 3 + 4?")
        page.get_by_label("Number of candidates").fill("1")
        sheet.press("Ask")
        steps = page.locator("#waiting .step")
        expect(steps.locator(".words")).to_have_text(
            ["Step 1: so.", texts[0][len("Step 1: so.\n\n") : len(texts[0]) // 2]]
        )
        expect(steps.first.locator(".chip")).to_have_count(1)
        expect(page.locator("#outcome")).to_be_hidden()
        more.set()
        expect(page.locator("#status")).to_contain_text("the gateway elects 7")
        expect(page.locator("#solutions .chip")).to_have_count(3)
        expect(page.locator("#waiting")).to_be_empty()
        page.close()
    assert sheet.complaints == []


@pytest.mark.parametrize("event", ['data: {"error": {"code": "upstream_failed", "message": "gone"}}', "data: [DONE]"])
def test_what_had_arrived_is_kept_when_the_upstream_fails(asking: Sheet, event: str) -> None:
    send(asking, candidate(0, 8), event)
    code, _ = asking.complaint()
    assert code == ("cut_short" if "DONE" in event else "upstream_failed")
    assert asking.elected("majority") == "8"
    expect(asking.page.get_by_label("Candidate solutions")).to_have_value(_texts((0, 8))[0])


def test_an_error_before_any_candidate_leaves_the_page_as_it_was(asking: Sheet) -> None:
    send(asking, 'data: {"error": {"code": "upstream_refused", "message": "no such model"}}')
    assert "no such model" in asking.complaint()[1]
    assert asking.elected("majority")
    expect(asking.page.locator("#status")).to_have_text("The results below are from before.")


def test_a_question_without_answers_is_no_mistake(asking: Sheet) -> None:
    haiku = {"candidate": {"index": 0, "text": "Rain on the roof.", "finish_reason": "stop"}}
    before = len(asking.requests)
    note = "no candidate states an answer; the first is returned as the upstream wrote it"
    send(asking, haiku, REPORT | {"sampled": 1, "answer": None, "notes": [note]}, "data: [DONE]")
    expect(asking.page.locator("#status")).to_have_text(f"1 candidate arrived; {note}.")
    expect(asking.page.locator("#solutions .chip")).to_have_count(1)
    expect(asking.page.locator(".complaint")).to_have_count(0)
    expect(asking.page.locator("#votes")).to_be_hidden()
    assert not any("vote/compare" in url for url in asking.requests[before:])


def test_a_question_is_stopped_and_what_had_arrived_votes(asking: Sheet) -> None:
    send(asking, candidate(0, 8))
    asking.press("Stop")
    expect(asking.page.locator("#status")).to_have_text("1 candidate had arrived.")
    assert asking.elected("majority") == "8"
    assert asking.page.evaluate("window.ended")
    expect(asking.page.locator(".complaint")).to_have_count(0)


def test_other_candidates_take_the_place_of_a_question(asking: Sheet) -> None:
    asking.paste("The answer is 3.")
    asking.page.keyboard.press("Control+Enter")
    asking.settled()
    assert asking.elected("majority") == "3"
    expect(asking.page.locator("#ask")).to_have_text("Ask")
    assert asking.page.evaluate("window.ended")
    expect(asking.page.locator("#status")).to_contain_text("1 solution scored by fake")


def test_a_question_needs_a_text_and_a_number(asking: Sheet) -> None:
    asking.press("Stop")
    asking.page.get_by_label("Number of candidates").fill("0.5")
    asking.press("Ask")
    assert asking.complaint()[0] == "bad_budget"
    asking.page.get_by_label("Problem", exact=True).fill(" ")
    asking.press("Ask")
    assert asking.complaint()[0] == "no_problem"


def test_without_a_gateway_the_page_says_how_to_get_one(sheet: Sheet) -> None:
    expect(sheet.page.get_by_role("button", name="Ask", exact=True)).to_be_disabled()
    expect(sheet.page.get_by_label("Model to ask")).to_be_disabled()
    sheet.press("Copy")
    expect(sheet.page.locator("#status")).to_have_text("Command copied.")
    command = sheet.page.evaluate("navigator.clipboard.readText()")
    assert command == "unprm serve --upstream-url http://localhost:11434/v1"
    assert not any("v1/" in url for url in sheet.requests)


def test_an_upstream_that_was_not_there_is_looked_for_again(browser: Browser, gateway: Running) -> None:
    page = browser.new_page()
    page.route("**/v1/models", lambda route: route.abort())
    sheet = Sheet(page, gateway.url).open()
    page.get_by_label("Problem", exact=True).fill("What is 3 + 5?")
    sheet.press("Ask")
    assert sheet.complaint()[0] == "unreachable"
    page.unroute("**/v1/models")
    with page.expect_request("**/v1/chat/completions") as posted:
        sheet.press("Ask")
    assert posted.value.post_data_json["model"] == "reasoner"
    page.close()
