"""The page of a run: what `training evaluate` and `training lab` write, as they write it."""

import io
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect
from rich.console import Console

from tests.browser.harness import Sheet, flaws
from tests.server.harness import serving
from training import best_of_n, processbench
from training.scorers import Asked
from unprm.engines.fake import FakeEngine
from unprm.equivalence import Equivalence

SILENT = Console(file=io.StringIO())
PIXEL = bytes.fromhex(
    "89504e470d0a1a0a0000000d494844520000000100000001080600000"
    + "01f15c4890000000d49444154789c6360000002000001e221bc330000000049454e44ae426082"
)
MARKUP = "<img src=x onerror='window.hit=1'>"


class Fixed:
    """A PRM whose scores are told by the length of a step."""

    def __init__(self, name: str, low: float) -> None:
        self.name = name
        self.low = low

    def score(self, asked: Sequence[Asked]) -> list[tuple[float, ...] | None]:
        return [tuple(self.low if "wrong" in step else 0.875 for step in own.steps) for own in asked]


def _rows() -> Iterator[dict[str, object]]:
    for k in range(4):
        problem = f"Question {k} {MARKUP} of $x_{k}$?"
        yield {"id": f"{k}/0", "problem": problem, "steps": ["fine", "fine"], "label": -1}
        yield {"id": f"{k}/1", "problem": problem, "steps": ["fine $y^2$", "wrong", "fine"], "label": 1}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with two PRMs' results, a benchmark, findings and a figure."""
    place = tmp_path_factory.mktemp("lab")
    (place / "benchmark").mkdir()
    (place / "benchmark" / "level-1.jsonl").write_text("".join(json.dumps(row) + "\n" for row in _rows()))
    samples = processbench.load(str(place / "benchmark"))
    questions = place / "questions.jsonl"
    candidates = [{"text": f"\\boxed{{{k % 3}}}", "reward": k / 8} for k in range(8)]
    questions.write_text(json.dumps({"problem": "How many?", "answer": "1", "candidates": candidates}) + "\n")
    for name, low in (("UnPRM", 0.125), ("Blind", 0.75)):
        processbench.evaluate(samples, Fixed(name, low), place / "processbench" / name / "0", SILENT)
        with Equivalence() as equivalence:
            asked = best_of_n.load(questions, "reward")
            best_of_n.evaluate(asked, None, equivalence, place / "best-of-n" / name, SILENT)
    finding = {"question": "Which is best?", "answer": f"UnPRM. {MARKUP}", "columns": ["a", "b"], "rows": [["x", 0.5]]}
    (place / "findings.json").write_text(json.dumps([finding]))
    (place / "figures").mkdir()
    (place / "figures" / "lanes.png").write_bytes(PIXEL)
    (place / "model.safetensors").write_bytes(b"weights")
    return place


@pytest.fixture
def report(browser: Browser, run: Path) -> Iterator[Sheet]:
    """The page of the run."""
    with serving(FakeEngine(), report=run) as server:
        context = browser.new_context()
        sheet = Sheet(context.new_page(), server.url)
        sheet.page.goto(f"{server.url}/page/report.html")
        expect(sheet.page.locator("#status")).to_have_text("")
        yield sheet
        context.close()
        assert sheet.complaints == []
        assert sheet.foreign() == []


def test_curves_of_every_vote_are_drawn(report: Sheet, run: Path) -> None:
    told = json.loads((run / "best-of-n" / "UnPRM" / "results.json").read_text())
    expect(report.page.locator("#chart .curve polyline")).to_have_count(2 * 6)
    cells = report.page.locator("#chart-table tbody tr", has_text="wrf").locator("td").all_inner_texts()
    shares = [told["accuracy"]["wrf"][size]["mean"] for size in ("1", "2", "4", "8")]
    assert [float(cell.split()[0]) for cell in cells[1:]] == [round(100 * share, 1) for share in shares]
    report.page.get_by_label("PRM").first.select_option(label="Blind")
    expect(report.page.locator("#chart-table caption")).to_contain_text("Blind")


def test_a_question_is_followed_down_to_the_coloured_step(report: Sheet) -> None:
    page = report.page
    page.locator("#prm").select_option(label="UnPRM/0")
    page.locator("#question").select_option(index=2)
    expect(page.locator("#asked")).to_contain_text("Question 2 " + MARKUP)
    assert page.locator(".solution .chip").all_inner_texts() == ["0.875", "0.875", "0.875", "0.125", "0.875"]
    expect(page.locator(".solution").nth(1).locator(".step").nth(1)).to_contain_text("first error")
    truths = page.locator("#truths li")
    assert all("the PRM is right" in text for text in truths.all_inner_texts())
    page.locator("#prm").select_option(label="Blind/0")
    expect(truths.nth(1)).to_contain_text("in truth step 2 is the first wrong one; the PRM says no wrong step")
    expect(page.locator("#asked")).to_contain_text("Question 2")
    assert page.evaluate("window.hit") is None


def test_findings_and_figures_are_shown(report: Sheet) -> None:
    expect(report.page.locator("#findings-list")).to_contain_text("UnPRM. " + MARKUP)
    assert report.page.locator("#figures-list img").evaluate("image => image.naturalWidth") == 1


@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 360)])
def test_axe_finds_nothing_and_nothing_is_too_wide(report: Sheet, scheme: str, width: int) -> None:
    report.page.emulate_media(color_scheme=scheme, reduced_motion="reduce")  # type: ignore[arg-type]
    report.page.set_viewport_size({"width": width, "height": 800})
    assert flaws(report.page) == []
    assert report.page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")


def test_the_page_leads_to_it_if_it_is_there(browser: Browser, run: Path) -> None:
    for given in (run, None):
        with serving(FakeEngine(), report=given) as server:
            sheet = Sheet(browser.new_page(), server.url).open()
            link = sheet.page.get_by_role("link", name="Report")
            if given is not None:
                link.click()
                expect(sheet.page.locator("#run")).to_contain_text(run.name)
            else:
                expect(link).to_be_hidden()
                sheet.page.goto(f"{server.url}/page/report.html")
                expect(sheet.page.locator("#status")).to_contain_text("There is nothing to show")
            sheet.page.close()
