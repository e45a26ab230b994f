"""Text of a caller stays text: on the page, in its formulas, in its links."""

import base64
import json
import zlib
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from tests.browser.harness import Sheet, scored
from tests.fake_engine import FakeEngine
from tests.server.harness import Running, serving

MARKUP = '<img src=x onerror="window.hit=1"><script>window.hit=1</script><svg onload="window.hit=1">'
HOSTILE = [
    r"$\href{javascript:window.hit=1}{x}$",
    r"$\url{https://example.org}$",
    r"$\includegraphics[width=9em]{https://example.org/x.png}$",
    r"$\htmlData{x=1}{y}$ $\htmlStyle{color:red}{y}$ $\htmlClass{chip}{y}$ $\htmlId{score}{y}$",
    r"$\def\a{\a\a}\a$",
    r"$\def\a#1{#1#1#1#1}\a{\a{\a{\a{\a{\a{x}}}}}}$",
    "$" + "{" * 480 + "}" * 480 + "$",
    "$" + r"\frac{1}{" * 110 + "1" + "}" * 110 + "$",
    "$" + "x" * 5000 + "$",
    "$x" * 4000,
    r"\boxed{" * 3000,
    r"$\undefined$ $\frac{1}$ $}{$ $\left( $",
    "$<img src=x onerror=window.hit=1>$",
    r"$\text{<script>window.hit=1</script>}$",
    "\\[" * 2000,
]


def test_markup_is_text_wherever_it_stands(sheet: Sheet) -> None:
    candidates = [scored(MARKUP, [0.9], id=MARKUP), {"steps": [MARKUP], "answer": "$" + MARKUP, "step_scores": [0.2]}]
    sheet.score(MARKUP + " $x$", *candidates)
    sheet.tile("wrf")
    assert sheet.page.locator("#results").locator("img, script, svg").count() == 0
    assert MARKUP in sheet.page.locator("#problem-text").inner_text()
    assert MARKUP in sheet.page.locator(".solution h3").first.inner_text()
    assert sheet.page.evaluate("window.hit") is None


def test_hostile_latex_stays_text(sheet: Sheet) -> None:
    sheet.score("Which?", *({"steps": [text], "answer": "1", "step_scores": [0.5]} for text in HOSTILE))
    sheet.tile("wrf")
    for k, text in enumerate(HOSTILE):
        step = sheet.page.locator(".solution .words").nth(k)
        step.scroll_into_view_if_needed()
        assert step.locator("a, img, script, [data-x], #score, .chip").count() == 0, text[:60]
    assert sheet.page.evaluate("window.hit") is None
    for k in (0, 1, 2, 3, 4, 8, 10, 14):
        step = sheet.page.locator(".solution .words").nth(k)
        assert step.text_content() == HOSTILE[k], HOSTILE[k][:60]


def test_a_formula_draws_only_within_its_step(sheet: Sheet) -> None:
    text = r"$\kern-90em\raisebox{90em}{\rule{500em}{500em}}$ $\smash{\rule{1em}{80em}}$ $\llap{\Huge 0.999}$"
    sheet.score("", {"steps": ["first", text, "last"], "answer": "1", "step_scores": [0.1, 0.1, 0.1]})
    step = sheet.page.locator(".solution .words").nth(1)
    expect(step.locator(".katex")).to_have_count(3)
    assert step.bounding_box()["height"] < 400  # type: ignore[index]
    covered = sheet.page.locator(".solution .chip").evaluate_all(
        """chips => chips.filter((chip) => {
          chip.scrollIntoView({block: "center"});
          const {x, y, width, height} = chip.getBoundingClientRect();
          return !chip.contains(document.elementFromPoint(x + width / 2, y + height / 2));
        }).length"""
    )
    assert covered == 0


def test_formulas_are_set_and_prices_are_not(sheet: Sheet) -> None:
    texts = {
        "$x^2$ and \\(y\\)": 2,
        "$$\\frac{1}{2}$$": 1,
        "\\[a\nb\\] then \\boxed{\\frac{1}{2}}": 2,
        "It costs $5 and $6, or $7.": 0,
        "Nothing $ here": 0,
        "a \\$5 and $z$": 1,
    }
    sheet.score("", *({"steps": [text], "answer": "1", "step_scores": [0.5]} for text in texts))
    sheet.tile("wrf")
    for k, number in enumerate(texts.values()):
        step = sheet.page.locator(".solution .words").nth(k)
        step.scroll_into_view_if_needed()
        expect(step.locator(".formula")).to_have_count(number)
    assert sheet.page.locator(".formula.display").count() == 2
    fonts = sheet.page.evaluate("[...document.fonts].filter(f => f.status === 'loaded').map(f => f.family)")
    assert any("KaTeX" in family for family in fonts)


def _link(payload: Any) -> str:
    packer = zlib.compressobj(wbits=-15)
    packed = packer.compress(payload if isinstance(payload, bytes) else json.dumps(payload).encode()) + packer.flush()
    return "#v1." + base64.urlsafe_b64encode(packed).decode().rstrip("=")


LINKS = {
    "a_bomb": _link(b'{"problem": "' + b"x" * 200_000_000 + b'"}'),
    "cut_short": _link({"problem": "x" * 500})[:-9],
    "not_base64": "#v1.%%%%",
    "another_version": "#v9.abcd",
    "a_number": _link(42),
    "null": _link(None),
}


@pytest.mark.parametrize("name", LINKS)
def test_a_hostile_link_is_refused(sheet: Sheet, name: str) -> None:
    sheet.page.goto(sheet.url + "/" + LINKS[name])
    assert sheet.complaint()[0] == "bad_link"


def test_a_link_fills_in_only_what_the_form_takes(sheet: Sheet) -> None:
    odd = {"problem": MARKUP, "candidates": 5, "aggregate": "evil", "strategy": "evil", "alpha": "9", "key": "k"}
    odd |= {"split": "evil", "extraction": "evil", "normalization": "toString"}
    candidates = sheet.page.locator("#candidates").input_value()
    sheet.page.goto(sheet.url + "/" + _link(odd))
    expect(sheet.page.locator("#problem")).to_have_value(MARKUP)
    assert sheet.page.locator("#aggregate").input_value() == "min"
    assert sheet.page.locator("#candidates").input_value() == candidates
    assert sheet.page.locator("#key").input_value() == ""
    assert sheet.page.locator("#alpha").input_value() == "0.5"
    assert [sheet.page.locator(f"#{field}").input_value() for field in ("split", "extraction")] == ["auto", "auto"]
    assert sheet.page.locator("#normalization").input_value() == "minmax"
    assert sheet.page.evaluate("window.hit") is None


def test_the_policy_holds_what_a_script_would_try(browser: Browser, running: Running) -> None:
    sheet = Sheet(browser.new_page(), running.url).open()
    blocked = sheet.page.evaluate(
        """async () => {
          const violations = [];
          document.addEventListener("securitypolicyviolation", (event) => violations.push(event.effectiveDirective));
          const script = document.createElement("script");
          script.textContent = "window.hit = 1";
          document.body.append(script);
          document.body.insertAdjacentHTML("beforeend", "<p style='color: red' onclick='window.hit = 1'>x</p>");
          const image = new Image();
          image.src = "https://example.org/x.png";
          await fetch("https://example.org/").catch(() => null);
          await new Promise((done) => setTimeout(done, 200));
          return violations;
        }"""
    )
    assert {"script-src-elem", "style-src-attr", "img-src", "connect-src"} <= set(blocked)
    assert sheet.page.evaluate("window.hit") is None
    sheet.page.close()


def test_no_text_of_the_page_is_in_an_address(browser: Browser, running: Running) -> None:
    with serving(FakeEngine()) as server:
        sheet = Sheet(browser.new_page(), server.url).open(_link({"problem": "topsecret"}))
        sheet.score("topsecret", "The answer is 1.")
        sheet.tile("wrf")
        sheet.page.close()
        sent = [url.partition("#")[0] for url in sheet.requests]
        assert len(sent) > 10
        assert not any("topsecret" in url or "v1." in url for url in sent)
