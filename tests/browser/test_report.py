"""The page of a run: what `training evaluate` and `research lab` write, as they write it."""

import io
import json
import math
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect
from rich.console import Console

from tests.browser.harness import Sheet, flaws
from tests.server.harness import serving
from tests.training import lines
from training.evaluate import best_of_n, judging, pool, processbench, right_votes
from training.evaluate.scorers import Identity, Solution
from training.settings import WrfSettings
from unprm.answers.equivalence import Equivalence
from unprm.engines.fake import FakeEngine
from unprm.votes.registry import REWARD_STRATEGIES

SILENT = Console(file=io.StringIO())
PIXEL = bytes.fromhex(
    "89504e470d0a1a0a0000000d494844520000000100000001080600000"
    + "01f15c4890000000d49444154789c6360000002000001e221bc330000000049454e44ae426082"
)
MARKUP = "<img src=x onerror='window.hit=1'>"


class Fixed:
    """A PRM that scores a step by its words; a solution with an endless step does not fit its window."""

    def __init__(self, name: str, low: float) -> None:
        self.name = name
        self.low = low

    @property
    def identity(self) -> Identity:
        return Identity(self.name, "float32", f"low {self.low}")

    def score(self, batch: Sequence[Solution]) -> list[tuple[float, ...] | None]:
        return [self._score(solution.steps) for solution in batch]

    def _score(self, steps: Sequence[str]) -> tuple[float, ...] | None:
        if any("endless" in step for step in steps):
            return None
        return tuple(self.low if "wrong" in step else 0.875 for step in steps)


HOSTILE_ID = f"a/../b?id=split&c#{MARKUP}"
QUESTIONS = {
    # three agree by steps that score low: majority, HMR and WRF at 0.5 elect them, the others the one alone
    "split": ("2", ["wrong $x^2$\n\\boxed{1}"] * 3 + ["fine\n\\boxed{2}"]),
    "easy": ("1", ["fine\n\\boxed{1}"] * 4),
    "missed": ("3", ["fine\n\\boxed{1}"] * 3 + ["wrong\n\\boxed{3}"]),
    "never": ("7", ["\\boxed{1}", "\\boxed{2}", "endless\n\\boxed{3}", " "]),
    "silent": ("7", ["I can't tell."] * 4),
    HOSTILE_ID: (
        MARKUP,
        [f"{MARKUP}\n\\boxed{{{MARKUP}}}"] * 2 + ["$\\href{javascript:window.hit=1}{x}$ \\boxed{1}"] * 2,
    ),
}
LOGITS = [2.5, -4.0, 0.5, 1.0]


def _rows() -> Iterator[dict[str, object]]:
    for k in range(4):
        problem = f"Question {k} {MARKUP} of $x_{k}$?"
        yield {"id": f"{k}/0", "problem": problem, "steps": ["fine", "fine"], "label": -1}
        yield {"id": f"{k}/1", "problem": problem, "steps": ["fine $y^2$", "wrong", "fine"], "label": 1}


def _questions(place: Path) -> Path:
    rows = [
        {
            "id": name,
            "problem": f"Question {name} of $x^2$?",
            "gold": gold,
            "candidates": [{"text": text, "logit": logit} for text, logit in zip(texts, LOGITS, strict=True)],
        }
        for name, (gold, texts) in QUESTIONS.items()
    ]
    place.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return place


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with two PRMs' results, others by given rewards, and from before questions were kept; a benchmark,
    costs, findings and a figure."""
    place = tmp_path_factory.mktemp("lab")
    (place / "benchmark").mkdir()
    (place / "benchmark" / "level-1.jsonl").write_text("".join(json.dumps(row) + "\n" for row in _rows()))
    samples = processbench.load(str(place / "benchmark"))
    file = _questions(place / "asked.jsonl")
    questions = pool.load(file)
    best_of_n.write_solutions(questions, place / "best-of-n")
    equivalence = Equivalence()
    for name, low in (("UnPRM", 0.125), ("Blind", 0.75)):
        processbench.evaluate(samples, Fixed(name, low), place / "processbench" / name / "0", SILENT)
        best_of_n.evaluate(questions, Fixed(name, low), equivalence, place / "best-of-n" / name, SILENT)
    given = pool.load(file, "logit")
    best_of_n.write_solutions(given, place / "given")
    best_of_n.evaluate(given, None, equivalence, place / "given", SILENT, WrfSettings(0.25))
    (place / "before").mkdir()
    shutil.copy(place / "given" / "results.json", place / "before")
    panel = {"EpicPRM": 1.0, "BayesPRM": 0.36}
    table = {"title": "cost of annotation", "columns": ["run", "samples"], "rows": [["BayesPRM", "9,708"]]}
    cost = {"finding": "BayesPRM is cheapest", "baseline": "EpicPRM", "tables": [table]}
    cost["per_solution"] = {"samples": panel, "tokens": panel}
    (place / "cost.json").write_text(json.dumps(cost))
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
    results = json.loads((run / "best-of-n" / "UnPRM" / "results.json").read_text())
    report.page.locator("#curve").select_option(label="UnPRM")
    expect(report.page.locator("#chart .curve polyline")).to_have_count(2 * (len(REWARD_STRATEGIES) + 1))
    cells = report.page.locator("#chart-table tbody tr", has_text="wrf").locator("td").all_inner_texts()
    shares = [results["accuracy"]["wrf"][size]["mean"] for size in ("1", "2", "4")]
    assert [float(cell.split()[0]) for cell in cells[1:]] == [round(100 * share, 1) for share in shares]
    report.page.get_by_label("PRM").first.select_option(label="Blind")
    expect(report.page.locator("#chart-table caption")).to_contain_text("Blind")


def _judge(page: Page, name: str) -> None:
    page.locator("#judge").select_option(label=name)
    expect(page.locator("#lanes caption")).to_have_text(f"{name}: questions and the votes that are right")


def _lane(page: Page, name: str) -> None:
    page.locator("#lanes").get_by_role("button", name=f"Question {name} of").click()
    expect(page.locator("#chosen-question-title")).to_have_text(f"Question {name}")


def _marks(page: Page) -> dict[str, list[bool]]:
    """What the visible lanes say of the five votes, by their problems."""
    rows = page.locator("#lanes tbody tr:visible")
    table = rows.evaluate_all("rows => rows.map((row) => [...row.cells].map((cell) => cell.innerText))")
    return {
        cells[0].split(" of ")[0].removeprefix("Question "): ["right" in cell for cell in cells[2:]] for cells in table
    }


def test_a_lane_tells_which_votes_are_right(report: Sheet, run: Path) -> None:
    page = report.page
    _judge(page, "UnPRM")
    judgements = judging.kept(run / "best-of-n" / "UnPRM")
    expected = {
        name: [right_votes.elects_right(vote, judged, range(4)) for vote in REWARD_STRATEGIES]
        for name, judged in zip(sorted(QUESTIONS), judgements, strict=True)
    }
    assert expected["split"][:5] == [False, True, False, False, True]
    assert _marks(page) == expected
    names = list(_marks(page))
    assert names[0] == "easy"
    assert set(names[-2:]) == {"never", "silent"}
    for k, vote in enumerate(REWARD_STRATEGIES):
        number = sum(right[k] for right in expected.values())
        expect(page.locator("#overview svg").nth(k)).to_have_attribute("aria-label", f"{vote}: {number} of 6 right")
    symbols = (
        page.locator("#lanes tbody tr", has_text="Question split of").locator(".mark [aria-hidden]").all_inner_texts()
    )
    assert symbols == ["✓" if right else "✗" for right in expected["split"]]


def test_lanes_are_narrowed(report: Sheet) -> None:
    page = report.page
    _judge(page, "UnPRM")
    expected = {
        "all": set(QUESTIONS),
        "differ": {"split"},
        "right": {"easy", HOSTILE_ID},
        "wrong": {"missed"},
        "nothing": {"never", "silent"},
    }
    for name, questions in expected.items():
        page.locator("#lanes-filter").select_option(name)
        assert set(_marks(page)) == questions, name
        expect(page.locator("#lanes-filter option:checked")).to_contain_text(f"({len(questions)})")


def test_a_lane_opens_its_question_down_to_the_coloured_step(report: Sheet) -> None:
    page = report.page
    _judge(page, "UnPRM")
    expect(page.locator("#chosen-question")).to_be_hidden()
    _lane(page, "split")
    expect(page.locator("#chosen-question-title")).to_be_focused()
    expect(page.locator("#problem .katex")).to_have_count(1)
    expect(page.locator("#gold")).to_contain_text("Gold answer 2, given by 1 of 4 candidates. PRM: UnPRM.")
    for vote, words in {"majority": "✗ wrong", "prm": "✓ right", "wrf": "✗ wrong", "weighted": "✓ right"}.items():
        assert words in report.tile(vote)
    cards = page.locator("#solutions .solution")
    assert cards.locator(".chip").all_text_contents() == ["0.125", "0.875"] * 3 + ["0.875", "0.875"]
    assert cards.locator(".facts .truth").all_text_contents() == ["✗ wrong"] * 3 + ["✓ right"]
    steps = cards.first.locator(".step")
    expect(steps.first).to_contain_text("first error")
    low, high = steps.evaluate_all("steps => steps.map((step) => getComputedStyle(step).backgroundColor)")
    assert low != high
    expect(cards.first.locator(".words .katex").first).to_be_attached()
    report.unfold("#why")
    page.locator(".class").filter(has_text="✓ right").get_by_role("button").click()
    expect(page.locator("#solutions .solution:visible")).to_have_count(1)


def test_another_alpha_votes_again(report: Sheet) -> None:
    page = report.page
    _judge(page, "UnPRM")
    _lane(page, "split")
    expect(page.locator("#explanation")).to_contain_text("It is a tie of 2 answers")
    assert report.elected("wrf") == "1"
    report.slide_and_vote(0.75)
    assert report.elected("wrf") == "2"
    assert "✓ right" in report.tile("wrf")
    expect(page.locator("#explanation")).to_contain_text("0.75 × 1.000 + 0.25 × 0.000 = 0.750")
    expect(page.locator("#solutions .solution").nth(3)).to_contain_text("★ elected")


def test_one_question_is_asked_for_not_all_of_them(report: Sheet) -> None:
    _lane(report.page, "split")
    files = [url.rsplit("/", 1)[1] for url in report.requests if "/best-of-n/" in url]
    assert {"solutions.jsonl?id=split", "candidates.jsonl?id=split"} <= set(files)
    assert not {"solutions.jsonl", "candidates.jsonl"} & set(files)


def test_the_question_stays_open_with_another_prm(report: Sheet) -> None:
    page = report.page
    _judge(page, "UnPRM")
    _lane(page, "split")
    _judge(page, "Blind")
    expect(page.locator("#gold")).to_contain_text("PRM: Blind.")
    expect(page.locator("#solutions .chip").first).to_have_text("0.750")
    expect(page.locator("#lanes [aria-current]")).to_contain_text("Question split")


def test_candidates_without_scores_or_answers_are_told(report: Sheet) -> None:
    page = report.page
    _judge(page, "UnPRM")
    _lane(page, "never")
    facts = page.locator("#solutions .facts").all_text_contents()
    assert "did not fit the model" in facts[2]
    assert "has no step" in facts[3]
    assert "reward none" in facts[2]
    expect(page.locator("#solutions .solution").nth(2)).to_contain_text("endless")
    _lane(page, "silent")
    expect(page.locator("#gold")).to_contain_text("No candidate has an answer")
    expect(page.locator("#ballot")).to_be_hidden()
    assert page.locator("#solutions .chip").all_text_contents() == ["0.875"] * 4
    _lane(page, "easy")
    expect(page.locator("#ballot")).to_be_visible()


def test_given_rewards_are_voted_with_as_probabilities(report: Sheet) -> None:
    page = report.page
    _judge(page, "given")
    _lane(page, "split")
    assert page.locator("#alpha").input_value() == "0.25"
    rewards = [1 / (1 + math.exp(-logit)) for logit in LOGITS]
    facts = page.locator("#solutions .facts").all_text_contents()
    assert all(f"reward {reward:.3f}" in text for reward, text in zip(rewards, facts, strict=True))
    assert not any("error" in text for text in facts)
    expect(page.locator("#legend")).to_contain_text("Their steps have no scores.")
    expect(page.locator("#solutions .chip")).to_have_count(0)
    report.choose("weighted")
    assert f"{sum(rewards[:3]):.3f}" in page.locator("#explanation").inner_text()


def test_runs_from_before_questions_were_kept_show_what_they_have(report: Sheet) -> None:
    page = report.page
    assert page.locator("#curve option").all_inner_texts() == ["before", "Blind", "UnPRM", "given"]
    assert page.locator("#judge option").all_inner_texts() == ["Blind", "UnPRM", "given"]


def test_text_of_a_question_stays_text(report: Sheet) -> None:
    page = report.page
    _lane(page, HOSTILE_ID)
    assert MARKUP in page.locator("#problem").inner_text()
    assert MARKUP in page.locator("#gold").inner_text()
    expect(page.locator("#solutions .step").first).to_contain_text(MARKUP)
    page.locator("#solutions .solution").last.scroll_into_view_if_needed()
    assert page.locator("#questions, #chosen-question").locator("img, script, a").count() == 0
    assert page.evaluate("window.hit") is None


def test_lanes_are_walked_and_opened_by_keys(report: Sheet) -> None:
    page = report.page
    page.locator("#lanes-filter").focus()
    page.keyboard.press("Tab")
    lane = page.locator("#lanes button:focus")
    expect(lane).to_have_count(1)
    first = lane.inner_text()
    outline = lane.evaluate("button => getComputedStyle(button).outlineStyle")
    assert outline != "none"
    page.keyboard.press("End")
    last = lane.inner_text()
    page.keyboard.press("ArrowDown")
    assert lane.inner_text() == last
    page.keyboard.press("Home")
    assert lane.inner_text() == first
    page.keyboard.press("ArrowDown")
    second = lane.inner_text()
    assert len({first, second, last}) == 3
    page.keyboard.press("Enter")
    expect(page.locator("#problem")).to_contain_text(second.split("$")[0])
    expect(page.locator("#chosen-question-title")).to_be_focused()
    page.keyboard.press("Shift+Tab")
    assert lane.inner_text() == second
    expect(lane).to_have_attribute("aria-current", "true")


def test_the_overview_leads_to_a_question(report: Sheet) -> None:
    page = report.page
    picture = page.locator("#overview svg").first
    picture.scroll_into_view_if_needed()
    box = picture.bounding_box()
    assert box is not None
    picture.click(position={"x": box["width"] / 12, "y": box["height"] / 2})
    expect(page.locator("#chosen-question-title")).to_have_text("Question easy")


def test_a_question_that_is_gone_is_told(report: Sheet, run: Path) -> None:
    page = report.page
    path = run / "best-of-n" / "solutions.jsonl"
    whole = path.read_bytes()
    try:
        path.write_text("".join(json.dumps(row) + "\n" for row in lines.read(path) if row["id"] != "easy"))
        page.locator("#lanes").get_by_role("button", name="Question easy of").click()
        expect(page.locator(".complaint")).to_contain_text("nothing at this address")
    finally:
        path.write_bytes(whole)
    _lane(page, "split")
    expect(page.locator(".complaint")).to_have_count(0)


def test_costs_are_shown(report: Sheet) -> None:
    cost = report.page.locator("#cost")
    expect(cost).to_contain_text("BayesPRM is cheapest.")
    expect(cost).to_contain_text("Rollouts per solution, as shares of EpicPRM")
    assert cost.locator("tbody").first.locator("tr").last.locator("td").all_inner_texts() == [
        "BayesPRM",
        "36 %",
        "36 %",
    ]
    # by key: a click may miss, as the solutions above are laid out when they come into view
    cost.get_by_text("cost of annotation").first.press("Enter")
    expect(cost.get_by_role("cell", name="9,708")).to_be_visible()


def test_a_solution_with_a_known_first_error_is_followed_down_to_the_coloured_step(report: Sheet) -> None:
    page = report.page
    page.locator("#prm").select_option(label="UnPRM/0")
    page.locator("#question").select_option(index=2)
    expect(page.locator("#errors-problem")).to_contain_text("Question 2 " + MARKUP)
    cards = page.locator("#errors-solutions .solution")
    expect(cards.locator(".chip")).to_have_text(["0.875", "0.875", "0.875", "0.125", "0.875"])
    expect(cards.nth(1).locator(".step").nth(1)).to_contain_text("first error")
    truths = page.locator("#truths li")
    expect(truths).to_contain_text(["the PRM is right", "the PRM is right"])
    page.locator("#prm").select_option(label="Blind/0")
    expect(truths.nth(1)).to_contain_text("in truth step 2 is the first wrong one; the PRM says no wrong step")
    expect(page.locator("#errors-problem")).to_contain_text("Question 2")
    assert page.evaluate("window.hit") is None


def test_findings_and_figures_are_shown(report: Sheet) -> None:
    expect(report.page.locator("#findings-list")).to_contain_text("UnPRM. " + MARKUP)
    assert report.page.locator("#figures-list img").evaluate("image => image.naturalWidth") == 1


@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 360)])
def test_axe_finds_nothing_and_nothing_is_too_wide(report: Sheet, scheme: str, width: int) -> None:
    report.page.emulate_media(color_scheme=scheme, reduced_motion="reduce")  # type: ignore[arg-type]
    report.page.set_viewport_size({"width": width, "height": 800})
    _lane(report.page, "split")
    assert flaws(report.page) == []
    assert report.page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    assert report.page.locator("#lanes").evaluate("lanes => lanes.scrollWidth <= lanes.clientWidth")


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
