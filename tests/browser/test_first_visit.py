"""The page's first ten seconds: what goes in and what comes out is on it before anybody has done anything."""

import re
from collections.abc import Iterator

import pytest
from PIL import Image, ImageSequence
from playwright.sync_api import Browser, Locator, expect

from tests.browser.first_visit import CARD, DEMO, SHARED, WIDE, text_of, visit
from tests.browser.harness import Sheet, flaws
from tests.server.harness import Running, serving

PHONE = {"width": 390, "height": 844}
SCORE = re.compile(r"\b(\d+)%|\b(\d\.\d{3})\b")


@pytest.fixture(scope="module")
def mini() -> Iterator[Running]:
    """A server with the embedded model."""
    from unprm.models.load import load_engine

    with serving(load_engine) as running:
        yield running


@pytest.fixture(params=[WIDE, PHONE], ids=["desktop", "phone"])
def first(request: pytest.FixtureRequest, browser: Browser, mini: Running) -> Iterator[Sheet]:
    """The page as a stranger sees it first."""
    sheet = visit(browser, mini.url, request.param)
    yield sheet
    sheet.page.context.close()
    assert sheet.complaints == []


def seen(*locators: Locator) -> None:
    for locator in locators:
        expect(locator).to_be_in_viewport(ratio=1)


def test_a_vote_is_on_the_page_with_its_problem_and_candidates(first: Sheet) -> None:
    page = first.page
    expect(page.get_by_label("Problem", exact=True)).to_have_value(re.compile("How many eggs"))
    expect(page.get_by_label("Candidate solutions")).to_have_value(re.compile("Step 1: 166 \\+ 66 = 222"))
    expect(page.locator("#winner")).to_have_text("466✓ supported")
    told = "5 candidates: the majority is tied between 456 and 466. The steps decide: 466. First mistakes: steps 1, 1, "
    expect(page.locator("#story")).to_have_text(told + "and 2 of solutions 1, 3, and 4.")
    seen(page.locator("#problem"), page.locator("#count"), page.locator("#score"), page.locator("#winner"))
    if page.viewport_size == WIDE:
        seen(page.locator("#cards"), page.locator("#story"), page.locator("#because"))
    elections = [tile.inner_text().split() for tile in page.locator(".tile").all()]
    names = ["majority", "prm", "hmr", "wrf", "weighted", "best_of_majority"]
    assert [(words[0], words[-1]) for words in elections] == [
        (name, "456" if name == "majority" else "466") for name in names
    ]
    assert page.evaluate("scrollY") == 0
    assert flaws(page) == []


def test_the_vote_is_open_with_its_ties_and_reasons(first: Sheet) -> None:
    page = first.page
    assert "tie" in first.tile("majority")
    expect(page.locator("#because")).to_have_text("466 has 2 candidates and a mean reward of 96%; 456 has 2 and 0%.")
    expect(page.locator("#explanation")).to_be_hidden()
    first.unfold("#why")
    expect(page.locator("#explanation")).to_contain_text("It leads the next answer by 0.499 (combined).")
    answer, banner = (page.locator(name).bounding_box() for name in ("#winner", "#demonstration"))
    assert answer
    assert banner
    assert answer["y"] < banner["y"]


def test_a_score_says_what_it_means_and_what_follows_an_error_is_dimmed(first: Sheet) -> None:
    page = first.page
    expect(page.locator("#legend")).to_contain_text("how likely everything so far is right")
    steps = first.solution(0).locator(".step")
    assert [step.get_attribute("class") for step in steps.all()] == ["step first-error", "step after", "step after"]
    colours = steps.evaluate_all("steps => steps.map((step) => getComputedStyle(step).color)")
    assert colours[0] != colours[1] == colours[2]
    if page.viewport_size == WIDE:
        seen(page.locator("#legend"), *page.locator(".solution").first.locator(".step").all())


def test_a_link_and_a_form_that_the_browser_has_kept_are_left_as_they_are(first: Sheet) -> None:
    before = len(first.requests)
    first.page.goto("about:blank")
    first.open("#v1.q1YqyEjMK1GyUkqpUEqtSCwAAA")
    assert first.complaint()[0] == "bad_link"
    expect(first.page.get_by_label("Problem", exact=True)).to_have_value("")
    assert not any("score_steps" in url for url in first.requests[before:])


def test_outside_of_the_domain_the_banner_warns_and_equations_are_checked(first: Sheet) -> None:
    page = first.page
    first.score("What is 12 * 12?", "Step 1: 12 * 12 = 144.\nThe answer is 144.", "12 * 12 = 24.\nThe answer is 24.")
    banner = page.locator("#demonstration.warning")
    expect(banner).to_contain_text("demo model can’t judge this")
    expect(page.locator("input[value=majority]")).to_be_checked()
    assert page.locator("#classes dt").all_text_contents() == ["candidates"] * 2
    expect(page.locator("#legend")).to_contain_text("Equations in the steps are checked")
    expect(page.locator("#winner")).to_have_text("144by a tie✓ supported")
    expect(page.locator("#story")).to_contain_text(
        "False equations count against an answer: 144. First mistake: step 1 of"
    )
    assert page.locator(".solution .chip").all_inner_texts() == ["holds", "false", ""]
    expect(page.locator(".badge")).to_have_count(1)
    expect(page.locator("#explanation")).to_contain_text("fewer solutions with a false equation win")
    assert not SCORE.search(page.locator("#solutions").inner_text())
    explanation = page.locator("#explanation")
    expect(explanation).not_to_contain_text("reward")
    expect(page.locator("input[name=strategy]")).to_have_count(1)
    assert flaws(page) == []


def test_the_animation_in_the_documentation_is_of_this_page(browser: Browser, mini: Running) -> None:
    sheet = visit(browser, mini.url)
    with Image.open(DEMO) as animation:
        comment = animation.info["comment"].decode()
        lasts = sum(frame.info["duration"] for frame in ImageSequence.Iterator(animation))
    # what was scored before is cached, and processors differ in the last digits
    shown, pictured = (re.sub(r"\d+ tokens computed, \d+ cached", "", text) for text in (text_of(sheet), comment))
    assert SCORE.sub("", shown) == SCORE.sub("", pictured)
    scores, pictured_scores = (
        [float(share) / 100 if share else float(score) for share, score in SCORE.findall(text)]
        for text in (shown, pictured)
    )
    assert scores == pytest.approx(pictured_scores, abs=0.011)
    sheet.page.context.close()
    assert 8_000 < lasts < 14_000
    assert DEMO.stat().st_size <= 2**20


def test_a_shared_link_has_a_picture_and_a_description(browser: Browser, mini: Running) -> None:
    page = browser.new_page()
    page.goto(mini.url)
    said = page.locator("meta[name=description], meta[property^='og:']")
    assert all(said.nth(k).get_attribute("content") for k in range(said.count()))
    assert said.count() == 3
    address = page.locator("meta[property='og:image']").get_attribute("content")
    response = page.request.get(f"{mini.url}/{address}")
    assert response.headers["content-type"] == "image/png"
    assert response.body() == CARD.read_bytes()
    with Image.open(CARD) as picture:
        assert picture.size == (SHARED["width"], SHARED["height"])
    page.close()
