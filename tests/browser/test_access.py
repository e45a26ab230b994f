"""The page for everybody: by keyboard, narrow, dark, and by what axe finds."""

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.harness import EXAMPLES, Sheet, flaws, scored
from tests.server.harness import Running

WIDE = {"steps": ["$$" + "+".join(f"x_{{{k}}}" for k in range(60)) + "$$", "w" * 300], "answer": "\\frac{1}{2}"}
CANDIDATES = [
    scored(1, [0.9, 0.1, 0.5]),
    scored("y" * 80, [0.2]),
    {**WIDE, "step_scores": [0.7, 0.6]},
    scored(1, [0.3]),
]
SIZES = {"desktop": (1280, 900), "phone": (360, 740)}


@pytest.fixture(params=[(scheme, size) for scheme in ("light", "dark") for size in SIZES], ids="-".join)
def look(request: pytest.FixtureRequest, browser: Browser, running: Running):
    """The page in a colour scheme at a size."""
    scheme, size = request.param
    width, height = SIZES[size]
    context = browser.new_context(
        viewport={"width": width, "height": height}, color_scheme=scheme, reduced_motion="reduce"
    )
    yield Sheet(context.new_page(), running.url).open()
    context.close()


def test_axe_finds_nothing(look: Sheet) -> None:
    assert flaws(look.page) == []
    candidates = [*CANDIDATES, ["too long for the model" * 1000]]
    look.score("How many $x$?", *candidates)
    look.tile("wrf")
    look.page.locator("#options summary").click()
    for k in range(len(candidates)):
        look.page.locator(".solution").nth(k).scroll_into_view_if_needed()
    expect(look.page.locator(".solution .katex").first).to_be_attached()
    assert flaws(look.page) == []
    look.paste("")
    look.press("Score and vote")
    look.complaint()
    expect(look.page.locator("#outcome")).to_have_class("old")
    assert flaws(look.page) == []


def test_nothing_is_wider_than_the_window(look: Sheet) -> None:
    look.score("How many $x$?", *CANDIDATES)
    look.tile("wrf")
    for k in range(len(CANDIDATES)):
        look.page.locator(".solution").nth(k).scroll_into_view_if_needed()
    expect(look.page.locator(".solution .katex").first).to_be_attached()
    wide, window = look.page.evaluate("[document.documentElement.scrollWidth, window.innerWidth]")
    assert wide <= window


@pytest.mark.parametrize(("width", "height"), [(1280, 800), (390, 844), (360, 740)])
def test_an_example_shows_its_votes_and_coloured_steps_within_the_window(
    browser: Browser, running: Running, width: int, height: int
) -> None:
    context = browser.new_context(viewport={"width": width, "height": height}, reduced_motion="reduce")
    page = Sheet(context.new_page(), running.url).open().page
    wide = width > 1000
    if wide:
        expect(page.locator("#score")).to_be_in_viewport(ratio=1)
    for name in EXAMPLES:
        page.get_by_role("button", name=name, exact=True).click()
        expect(page.locator("#winner")).to_be_in_viewport(ratio=1)
        expect(page.locator("#story")).to_be_in_viewport(ratio=1)
        if wide:
            expect(page.locator(".solution .step:visible").nth(2)).to_be_in_viewport(ratio=1)
        else:
            expect(page.locator("#votes")).to_be_in_viewport()
        if wide:
            expect(page.locator("#score")).to_be_in_viewport(ratio=1)
            assert page.evaluate("scrollY") == 0
    context.close()


def test_dark_is_dark_and_the_button_overrules_the_system(browser: Browser, running: Running) -> None:
    context = browser.new_context(color_scheme="dark")
    page = Sheet(context.new_page(), running.url).open().page

    def brightness() -> int:
        colour = page.evaluate("getComputedStyle(document.body).backgroundColor")
        return sum(int(part) for part in colour.strip("rgb()").split(","))

    assert brightness() < 120
    button = page.locator("#theme")
    button.click()
    expect(button).to_have_text("◐ light")
    assert brightness() > 600
    page.reload()
    expect(button).to_have_text("◐ light")
    assert brightness() > 600
    button.click()
    assert brightness() < 120
    context.close()


def _tab_to(page: Page, selector: str, most: int = 40) -> None:
    for _ in range(most):
        if page.evaluate("selector => document.activeElement.matches(selector)", selector):
            outline = page.evaluate(
                """() => {
                  const active = document.activeElement;
                  const seen = [active, active.closest("label"), active.parentElement.querySelector(".button")];
                  return seen.some((node) => node && getComputedStyle(node).outlineStyle !== "none");
                }"""
            )
            assert outline, f"the focus can't be seen at {selector}"
            return
        page.keyboard.press("Tab")
    raise AssertionError(f"{selector} is not reached by the tabulator key")


def test_all_is_done_by_keys(browser: Browser, running: Running) -> None:
    context = browser.new_context(permissions=["clipboard-read", "clipboard-write"])
    sheet = Sheet(context.new_page(), running.url).open()
    page = sheet.page
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "results"
    page.reload()
    expect(page.locator("#examples button").first).to_be_visible()
    page.locator("body").click(position={"x": 2, "y": 2})
    _tab_to(page, "#examples button")
    for selector in ("#problem", "#command", "#cards textarea", "#add", "#paste summary"):
        _tab_to(page, selector)
    page.keyboard.press("Enter")
    for selector in ("#candidates", "#file", "#options summary"):
        _tab_to(page, selector)
    page.keyboard.press("Enter")
    for selector in ("#aggregate", "#score"):
        _tab_to(page, selector)
    page.locator("#problem").focus()
    page.keyboard.press("Control+A")
    page.keyboard.type("How many?")
    _tab_to(page, "#candidates")
    page.keyboard.press("Control+A")
    page.keyboard.type('{"steps":["a"],"answer":"1","step_scores":[0.9]}\n')
    page.keyboard.type('{"steps":["b"],"answer":"2","step_scores":[0.3]}\n')
    page.keyboard.type('{"steps":["c"],"answer":"2","step_scores":[0.4]}')
    page.keyboard.press("Control+Enter")
    sheet.settled()
    _tab_to(page, "#why summary")
    page.keyboard.press("Enter")
    _tab_to(page, "input[value=wrf]")
    page.keyboard.press("ArrowLeft")
    expect(page.locator("input[value=hmr]")).to_be_checked()
    expect(page.locator("#explanation")).to_contain_text("at least half")
    page.keyboard.press("ArrowRight")
    expect(page.locator("input[value=wrf]")).to_be_checked()
    page.locator("#why summary").focus()
    _tab_to(page, "#alpha")
    page.keyboard.press("End")
    expect(page.locator("#weights output")).to_have_text("1.00")
    sheet.voted()
    assert sheet.elected("wrf") == "1"
    _tab_to(page, ".class:nth-child(2) a")
    page.keyboard.press("Enter")
    expect(page.locator("#solution-2")).to_be_in_viewport()
    context.close()


def test_results_and_errors_are_announced(sheet: Sheet) -> None:
    sheet.score("", *CANDIDATES)
    sheet.tile("wrf")
    expect(sheet.page.get_by_role("status").filter(has_text="4 candidates came with scores")).to_be_visible()
    sheet.paste("")
    sheet.press("Score and vote")
    expect(sheet.page.get_by_role("alert")).to_contain_text("There is no candidate yet")
