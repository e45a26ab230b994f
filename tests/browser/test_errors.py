"""Every error is shown in a sentence that says what to do."""

import json
import threading
from typing import Any

import pytest
from playwright.sync_api import Browser, Route, expect

from server.problem_details import TABLE
from tests.browser.harness import Sheet, scored
from tests.fake_engine import FakeEngine
from tests.server.harness import serving

ADVICE = [
    "Reload",
    "Enter",
    "Does a proxy",
    "Is there a proxy",
    "Score",
    "Correct",
    "Remove",
    "Shorten",
    "Write",
    "Wait",
    "Try again",
    "ask the operator",
    "Check that",
    "Paste",
    "Choose",
    "Ask for it",
]


def says_what_to_do(sheet: Sheet, code: str) -> str:
    shown, text = sheet.complaint()
    assert shown == code
    assert any(words in text for words in ADVICE), text
    assert len(text.splitlines()[0]) > 40
    return text


def test_every_error_of_the_server_is_told(sheet: Sheet) -> None:
    def answer(route: Route) -> None:
        row = TABLE[code]
        body = {"code": code, "title": row.title, "status": row.status, "detail": "Zounds.", "errors": []}
        body |= {"type": f"urn:unprm:error:{code}", "request_id": "r-1"}
        headers = {"Retry-After": "7"} if row.retry_after else {}
        content = json.dumps(body)
        route.fulfill(status=row.status, content_type="application/problem+json", body=content, headers=headers)

    sheet.page.route("**/score_steps", answer)
    for code in TABLE:
        sheet.score("How many?", "The answer is 1.")
        expect(sheet.page.locator(".complaint")).to_have_attribute("data-code", code)
        text = says_what_to_do(sheet, code)
        assert "Zounds." in text
        assert ("again in 7 s" in text) == (TABLE[code].retry_after is not None)
        assert ("r-1" in text) >= (code == "internal")


REAL: dict[str, tuple[dict[str, Any], list[Any], str]] = {
    "too_many_solutions": ({"max_solutions": 2}, ["a", "b", "c"], "3"),
    "too_many_steps": ({"max_steps": 2}, [["a", "b", "c"]], "Candidate 1"),
    "body_too_large": ({"max_body_bytes": 300}, ["a" * 400], "300"),
    "invalid_request": ({}, [["a"], {"steps": ["a"], "step_scores": [0.5, 0.5]}], "Candidate 2"),
    "solution_too_long": ({}, ["b" * 5000], "Candidate 1"),
    "blank": ({}, ['""'], "Candidate 1"),
}


@pytest.mark.parametrize("code", REAL)
def test_a_real_servers_error_names_the_place(browser: Browser, code: str) -> None:
    options, candidates, place = REAL[code]
    with serving(FakeEngine(max_tokens=1000), **options) as server:
        sheet = Sheet(browser.new_page(), server.url).open()
        sheet.score("How many?", *candidates)
        assert place in says_what_to_do(sheet, code)
        sheet.page.close()


def test_a_key_is_asked_for_and_kept_by_the_tab_alone(browser: Browser) -> None:
    with serving(FakeEngine(), api_key="open sesame") as server:
        context = browser.new_context(permissions=["clipboard-read", "clipboard-write"])
        sheet = Sheet(context.new_page(), server.url).open()
        says_what_to_do(sheet, "unauthorized")
        expect(sheet.page.get_by_label("API key")).to_be_focused()
        sheet.page.get_by_label("API key").fill("open sesame")
        sheet.score("How many?", "The answer is 1.")
        assert sheet.tile("wrf")
        expect(sheet.page.locator(".complaint")).to_have_count(0)
        expect(sheet.page.locator("#model-line")).to_contain_text("fake")
        stored = sheet.page.evaluate("[{...sessionStorage}, {...localStorage}, document.cookie]")
        assert stored == [{"unprm-key": "open sesame"}, {}, ""]
        sheet.press("Copy as curl")
        expect(sheet.page.locator("#status")).to_contain_text("copied")
        command = sheet.page.evaluate("navigator.clipboard.readText()")
        assert "sesame" not in command
        assert '"Authorization: Bearer $UNPRM_API_KEY"' in command
        other = Sheet(context.new_page(), server.url).open()
        says_what_to_do(other, "unauthorized")
        context.close()


def test_a_server_that_is_gone_is_told(browser: Browser) -> None:
    with serving(FakeEngine()) as server:
        sheet = Sheet(browser.new_page(), server.url).open()
    sheet.score("How many?", "The answer is 1.")
    says_what_to_do(sheet, "unreachable")
    sheet.page.close()


def test_what_is_no_answer_of_this_server_is_told(sheet: Sheet) -> None:
    sheet.page.route("**/score_steps", lambda route: route.fulfill(status=502, body="<h1>Bad gateway</h1>"))
    sheet.score("How many?", "The answer is 1.")
    assert "502" in says_what_to_do(sheet, "unexpected")
    expect(sheet.page.locator(".complaint h1")).to_have_count(0)


def test_a_model_that_still_loads_is_waited_for(browser: Browser) -> None:
    gate = threading.Event()

    def load() -> FakeEngine:
        gate.wait()
        return FakeEngine()

    with serving(load) as server:
        sheet = Sheet(browser.new_page(), server.url).open()
        expect(sheet.page.locator("#model-line")).to_contain_text("the model is being loaded")
        expect(sheet.page.locator("#status")).to_contain_text("scored as soon as it is")
        sheet.press("A slip")
        expect(sheet.page.locator("#status")).to_contain_text("scored as soon as it is")
        expect(sheet.page.locator(".complaint")).to_have_count(0)
        gate.set()
        assert sheet.tile("wrf")
        expect(sheet.page.locator(".solution")).to_have_count(2)
        expect(sheet.page.locator("#model-line")).to_contain_text("fake")
        sheet.page.close()


def test_input_that_is_missing_is_asked_for_without_a_request(sheet: Sheet) -> None:
    before = len(sheet.requests)
    sheet.score("How many?")
    says_what_to_do(sheet, "no_candidates")
    sheet.score("", "The answer is 1.")
    says_what_to_do(sheet, "no_problem")
    sheet.page.locator("#options summary").click()
    sheet.page.get_by_label("Steps below this are errors").fill("2")
    sheet.score("How many?", "The answer is 1.")
    says_what_to_do(sheet, "bad_threshold")
    sheet.page.locator("#file").set_input_files([{"name": "x", "mimeType": "text/plain", "buffer": b" \n"}])
    says_what_to_do(sheet, "bad_file")
    sheet.page.goto(f"{sheet.url}/#v1.not_a_link")
    says_what_to_do(sheet, "bad_link")
    assert not any(url.endswith(("score_steps", "vote/majority")) for url in sheet.requests[before:])


def test_an_error_goes_away_with_the_next_success(sheet: Sheet) -> None:
    sheet.score("How many?")
    sheet.complaint()
    sheet.score("", scored(1, [0.5]))
    assert sheet.tile("wrf")
    expect(sheet.page.locator(".complaint")).to_have_count(0)
