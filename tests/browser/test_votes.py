"""The page shows the votes as the server takes them, and goes on showing the last ones where it gets no new ones."""

import json
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Route, expect

from tests.browser.harness import Sheet, flaws, percent, scored
from tests.server.calibrations import calibration
from tests.server.harness import Running, serving
from unprm.votes.registry import REWARD_STRATEGIES, VOTES

PROBLEM = "Zoe has 23 coins. Zoe finds 45 coins. How many coins does Zoe have now?"
"""In the demonstration's domain."""
TWO_TO_ONE = [scored(1, [0.5]), scored(1, [0.5]), scored(2, [0.9])]
ELECTIONS: dict[str, list[Any]] = {
    "one answer": [scored(1, [0.5]), scored(1, [0.7])],
    "two halves": [scored(1, [0.5]), scored(2, [0.5])],
    "ties of all rewards": [scored(k % 3, [0.25, 0.5]) for k in range(7)],
    "almost ties": [scored(1, [0.5]), scored(2, [0.5 + 4e-10]), scored(3, [0.5 - 2e-9])],
    "equal answers": [scored(0.5, [0.9]), scored("\\frac{1}{2}", [0.8]), scored("50%", [0.1]), scored(2, [0.95])],
    "one readable": [scored(1, [0.5]), scored("", [0.9]), scored("", [0.9])],
    "silent candidates": [scored(1, [0.5]), scored("", [0.9]), scored("", [0.9]), scored(2, [0.4])],
    "unscored candidates": [scored(1, [0.5]), "", {"text": "", "answer": "2"}, ["b" * 5000, "\\boxed{2}"]],
    "scores of the model": ["a\n\\boxed{1}", "b\nc\n\\boxed{2}", "I can't tell.", "d\n\\boxed{2}"],
    "many answers": [scored(k // 2, [k / 31, 1 - k / 41]) for k in range(30)],
}
CLASSES = """
rows => rows.map((row, place) => {
  const text = (node) => node.innerText.trim();
  const lines = [...document.querySelectorAll("#measures tr")].map((line) => [...line.children].slice(1).map(text));
  const shares = [...row.querySelectorAll("dt")].map((name) => [text(name), text(name.nextSibling)]);
  const figures = lines[0].map((name, column) => [name, lines[place + 1][column]]);
  return [text(row.querySelector(".vote")), Object.fromEntries(shares), Object.fromEntries(figures)];
})
"""


def number(value: float | None) -> str:
    return "none" if value is None else f"{value:.3f}"


def figures(strategy: str, candidate: dict[str, Any]) -> dict[str, str]:
    """What a vote compares in a class of answers; by the fields of the response."""
    fields = {"mean reward": "mean_reward"}
    fields |= {
        "majority": {},
        "prm": {"highest reward": "max_reward"},
        "hmr": {"highest reward": "max_reward"},
        "wrf": {
            "normalised reward": "normalized_reward",
            "normalised frequency": "normalized_frequency",
            "combined": "score",
        },
        "best_of_majority": {"highest reward": "max_reward"},
    }.get(strategy, {VOTES[strategy].score_name: "score"})
    return {title: number(candidate[field]) for title, field in fields.items()}


def lead(outcome: dict[str, Any], total: int) -> str:
    """How the page says by how much an answer wins."""
    if outcome["tie"]:
        return f"It is a tie between {len(outcome['tied_answers'])} answers"
    margin = outcome["margin"]
    if outcome["decided_by"] == "only_answer":
        return f"only {outcome['candidates'][0]['count']} of {total} candidates is readable"
    if margin is None:
        return ""
    if outcome["decided_by"] == "majority":
        return f"It leads the next answer by {margin:.0f} candidate{'' if margin == 1 else 's'}."
    return f"It leads the next answer by {margin:.3f} ({VOTES[outcome['strategy']].score_name})."


@pytest.mark.parametrize("name", ELECTIONS)
def test_the_page_shows_what_the_server_answers(sheet: Sheet, running: Running, name: str) -> None:
    page, candidates = sheet.page, ELECTIONS[name]
    sheet.score(PROBLEM, *candidates)
    for alpha in (0.5, 0.0, 0.83):
        sheet.choose("wrf")
        sheet.slide_and_vote(alpha)
        answer = running.post("/vote/compare", {"problem": PROBLEM, "solutions": candidates, "alpha": alpha}).json()
        assert list(answer["strategies"]) == list(REWARD_STRATEGIES)
        for strategy, outcome in answer["strategies"].items():
            assert sheet.elected(strategy) == outcome["answer"] or "\\" in outcome["answer"]
            assert ("tie" in sheet.tile(strategy).split()) == outcome["tie"]
            sheet.choose(strategy)
            assert sheet.page.locator("#winner .answer").inner_text() == sheet.elected(strategy)
            assert lead(outcome, len(candidates)) in page.locator("#explanation").inner_text()
            shown = page.locator(".class").evaluate_all(CLASSES)
            assert shown == [
                [
                    "★ elected" if rank == 0 else "tied" if rank < len(outcome["tied_answers"]) else "",
                    {
                        "candidates": f"{candidate['count']} of {len(candidates)}",
                        "mean reward": percent(candidate["mean_reward"]),
                    },
                    figures(strategy, candidate),
                ]
                for rank, candidate in enumerate(outcome["candidates"])
            ]
            [elected] = page.locator(".solution").evaluate_all(
                "cards => cards.flatMap((card) => card.dataset.vote === 'elected' ? [card.id] : [])"
            )
            assert elected == f"solution-{outcome['solution_index'] + 1}"
            expect(page.locator(".solution").first).to_have_id(elected)


def test_a_vote_on_known_scores_runs_no_model(sheet: Sheet) -> None:
    with sheet.page.expect_response("**/vote/compare") as first:
        sheet.score(PROBLEM, *ELECTIONS["scores of the model"], *ELECTIONS["unscored candidates"])
    sheet.tile("wrf")
    with sheet.page.expect_response("**/vote/compare") as second:
        sheet.slide(0.9)
    sent = second.value.request.post_data_json
    assert first.value.request.post_data_json | {"alpha": 0.9} == sent
    assert "step_scores" in sent["solutions"][0]
    assert {answer.value.json()["usage"]["computed_tokens"] for answer in (first, second)} == {0}


def test_a_slide_is_one_request(sheet: Sheet) -> None:
    sheet.score(PROBLEM, *TWO_TO_ONE)
    sheet.tile("wrf")
    before = len(sheet.requests)
    sheet.slide(*(k / 100 for k in range(100)))
    expect(sheet.page.locator("#weights output")).to_have_text("0.99")
    sheet.voted()
    assert sheet.elected("wrf") == "2"
    assert [url.rsplit("/", 2)[1:] for url in sheet.requests[before:]] == [["vote", "compare"]]


def test_a_late_answer_is_dropped(sheet: Sheet) -> None:
    held: list[Route] = []

    def hold_first(route: Route) -> None:
        if route.request.post_data_json["alpha"] == 0:
            held.append(route)
        else:
            route.continue_()

    sheet.score(PROBLEM, *TWO_TO_ONE)
    sheet.tile("wrf")
    sheet.page.route("**/vote/compare", hold_first)
    with sheet.page.expect_request("**/vote/compare"):
        sheet.slide(0.0)
    expect(sheet.page.locator("#explanation")).to_contain_text("0.50 ×")
    sheet.slide_and_vote(1.0)
    assert sheet.elected("wrf") == "2"
    [late] = held
    late.continue_()
    sheet.page.wait_for_timeout(500)
    assert sheet.elected("wrf") == "2"
    expect(sheet.page.locator("#explanation")).to_contain_text("1.00 ×")
    expect(sheet.page.locator(".complaint")).to_have_count(0)


def test_other_candidates_end_the_vote_on_those_of_before(sheet: Sheet) -> None:
    sheet.score(PROBLEM, *TWO_TO_ONE)
    sheet.tile("wrf")
    sheet.slide(1.0)
    sheet.score(PROBLEM, scored(7, [0.5]), scored(7, [0.5]))
    assert sheet.elected("wrf") == "7"
    assert sheet.elected("prm") == "7"
    expect(sheet.page.locator(".class")).to_have_count(1)


@pytest.mark.parametrize("failure", ["offline", "overloaded"])
def test_without_new_votes_the_last_ones_stay(sheet: Sheet, failure: str) -> None:
    sheet.score(PROBLEM, *TWO_TO_ONE)
    sheet.tile("wrf")
    if failure == "offline":
        sheet.page.context.set_offline(True)
    else:
        details = json.dumps({"code": "overloaded", "detail": "", "errors": [], "request_id": "r"})
        sheet.page.route("**/vote/compare", lambda route: route.fulfill(status=429, body=details))
    sheet.slide_and_vote(1.0)
    assert sheet.complaint()[0] == {"offline": "unreachable"}.get(failure, failure)
    assert sheet.elected("wrf") == "1"
    expect(sheet.page.locator("#explanation")).to_contain_text("0.50 ×")
    sheet.choose("prm")
    expect(sheet.page.locator("#explanation")).to_contain_text("solution 3 with 0.900")
    sheet.page.context.set_offline(False)
    sheet.page.unroute("**/vote/compare")
    sheet.slide_and_vote(0.99)
    expect(sheet.page.locator(".complaint")).to_have_count(0)
    assert sheet.elected("wrf") == "2"


def test_a_vote_of_which_no_script_knows_is_shown(sheet: Sheet) -> None:
    def with_another(route: Route) -> None:
        answer = route.fetch().json()
        answer["strategies"]["borda"] = answer["strategies"]["weighted"] | {"strategy": "borda"}
        route.fulfill(json=answer)

    def with_its_title(route: Route) -> None:
        route.fulfill(json=route.fetch().json() | {"borda": {"title": "Borda count", "score": "number of points"}})

    sheet.page.route("**/page/strategies.json", with_its_title)
    sheet.page.route("**/vote/compare", with_another)
    sheet.open()
    sheet.page.reload()
    sheet.score(PROBLEM, *TWO_TO_ONE)
    assert "Borda count" in sheet.tile("borda")
    sheet.choose("borda")
    expect(sheet.page.locator("#explanation")).to_contain_text("1 has the highest number of points, 1.000 from 2 of 3")
    assert "number of points" in sheet.page.locator("#measures").inner_text()


def test_the_page_says_whether_answers_are_accepted(browser: Browser, tmp_path: Path) -> None:
    unsure = [scored(1, [0.4]), scored(2, [0.35])]
    with serving(vote_calibration=calibration(tmp_path)) as running:
        sheet = Sheet(browser.new_page(), running.url).open()
        sheet.score(PROBLEM, *TWO_TO_ONE)
        assert "accepted" not in sheet.tile("wrf")
        sheet.unfold("#options")
        sheet.page.get_by_label("Share of accepted answers").fill("0.05")
        sheet.page.get_by_label("Share of accepted answers").blur()
        expect(sheet.page.locator(".tile:has(input[value=majority]) .how")).to_have_text("accepted")
        sheet.choose("majority")
        explained = sheet.page.locator("#because")
        by = "It is accepted at a risk of 5%, by 100 problems of “a pool” (2026-01-31)"
        expect(explained).to_contain_text(f"{by}: its certainty is 0.667, 0.600 is needed")
        sheet.score(PROBLEM, *unsure)
        expect(explained).to_contain_text("It is not accepted at a risk of 5%")
        sheet.score(PROBLEM, *unsure[:1])
        expect(explained).to_contain_text("the candidates lie outside the calibration in candidates")
        assert flaws(sheet.page) == []
        assert sheet.complaints == []
        sheet.page.close()


def test_without_a_calibration_no_risk_is_offered(sheet: Sheet) -> None:
    sheet.unfold("#options")
    expect(sheet.page.locator("#risk")).to_be_hidden()
