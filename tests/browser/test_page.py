"""What the page is for: paste, score, vote, weigh, compare models, upload, take it elsewhere."""

import json
import re
import subprocess

import pytest
from playwright.sync_api import Browser, Dialog, Route, expect

from tests.browser.harness import EXAMPLES, Sheet, percent, scored
from tests.fake_engine import FakeEngine
from tests.server.harness import Running, serving
from tests.support import until
from unprm.mini.domain import parse
from unprm.steps import first_error
from unprm.votes.registry import REWARD_STRATEGIES

PROBLEM = "How many?"
KNOWN = "Zoe has 23 coins. Zoe finds 45 coins. How many coins does Zoe have now?"
"""In the demonstration's domain."""
OF_THE_DOMAIN = "Zoe has 23 coins. Zoe finds 45 coins. How many coins does Zoe have now?"
STRATEGIES = REWARD_STRATEGIES
# majority: 1; the highest reward: 2; WRF: 1 below α = 0.5 …, 2 above
SPLIT = [scored(1, [0.4]), scored(1, [0.5]), scored(1, [0.6]), scored(2, [0.9, 0.8]), scored(3, [0.1])]


def test_a_problem_is_pasted_scored_and_voted_on(sheet: Sheet, running: Running) -> None:
    texts = ["Step 1: a.\nStep 2: b.\nStep 3: The answer is \\boxed{7}.", "c.\nThe answer is 7.0.", "\\boxed{8}"]
    sheet.score(OF_THE_DOMAIN, *texts)
    expected = running.post("/vote/compare", {"problem": OF_THE_DOMAIN, "solutions": texts}).json()
    for strategy in STRATEGIES:
        assert sheet.elected(strategy) == expected["strategies"][strategy]["answer"]
    expect(sheet.page.locator(".solution")).to_have_count(3)
    for k, solution in enumerate(expected["solutions"]):
        card = sheet.solution(k)
        card.scroll_into_view_if_needed()
        chips = card.locator(".step .chip")
        assert chips.all_inner_texts() == [percent(score) for score in solution["step_scores"]]
        details = chips.evaluate_all("chips => chips.map((chip) => chip.title)")
        assert details == [f"score {score:.4f}" for score in solution["step_scores"]]
        symbols = card.locator(".chip").evaluate_all(
            "chips => chips.map((chip) => getComputedStyle(chip, '::before').content[1])"
        )
        error = first_error(solution["step_scores"])
        right = len(symbols) if error is None else error
        # a quotation mark ends the content of a step after the error
        assert symbols == [*["✓"] * right, "✗", *['"'] * len(symbols)][: len(symbols)]
        steps = card.locator(".step")
        marked = steps.evaluate_all("steps => steps.findIndex((step) => step.classList.contains('first-error'))")
        assert marked == (-1 if error is None else error)
        assert card.locator(".step.after").count() == max(0, len(symbols) - right - 1)
        assert percent(solution["reward"]) in card.locator(".facts").inner_text()
    elected = expected["strategies"]["wrf"]["solution_index"]
    assert "elected" in sheet.solution(elected).locator(".vote").inner_text()
    expect(sheet.page.locator("#model-line")).to_have_text("fake on cpu")


def test_where_scores_come_from_is_told(sheet: Sheet) -> None:
    status = sheet.page.locator("#status")
    for _ in range(2):
        sheet.score("", *SPLIT)
        sheet.tile("wrf")
        expect(status).to_have_text("5 candidates came with scores: no model was run.")
        sheet.score(OF_THE_DOMAIN, ["a", "The answer is 1."], *SPLIT)
        sheet.tile("wrf")
        expect(status).to_have_text(
            re.compile(r"1 solution scored by fake: \d+ tokens computed, \d+ cached; 5 candidates came with")
        )


@pytest.mark.parametrize("in_domain", [True, False])
def test_what_a_demonstration_s_scores_are_worth_stays_with_them(sheet: Sheet, in_domain: bool) -> None:
    demonstration = {"in_domain": in_domain, "detail": "A demonstration scored these."}

    def by_a_demonstration(route: Route) -> None:
        scored_by_it = any("step_scores" not in solution for solution in route.request.post_data_json["solutions"])
        scored = route.fetch().json() | {"demonstration": demonstration if scored_by_it else None}
        if scored_by_it and not in_domain:
            scored["solutions"] = [each | {"reward": None} for each in scored["solutions"]]
        route.fulfill(json=scored)

    sheet.page.route("**/score_steps", by_a_demonstration)
    sentence = sheet.page.locator("#demonstration")
    words = re.compile("Scored by the built-in demo model" if in_domain else "can’t judge this: only equations are")
    sheet.score(PROBLEM, ["The answer is 1."], ["The answer is 2."])
    sheet.tile("wrf" if in_domain else "majority")
    expect(sentence).to_have_text(words)
    # outside of what it knows, it elects nothing
    address = f"**/vote/{'compare' if in_domain else 'majority'}"
    chosen = sheet.page.locator("input[value=wrf]" if in_domain else "input[value=majority]")
    expect(chosen).to_be_checked()
    sheet.unfold("#options")
    with sheet.page.expect_response(address):
        sheet.page.get_by_label("Solution reward").select_option("mean")
    expect(sentence).to_have_text(words)
    if in_domain:
        sheet.choose("prm")
    with sheet.page.expect_response(address):
        sheet.press("Score and vote")
    sheet.voted()
    expect(sheet.page.locator(f"input[value={'prm' if in_domain else 'majority'}]")).to_be_checked()
    sheet.score("", *SPLIT)
    expect(sentence).to_have_text("")


def test_colour_follows_the_score(sheet: Sheet) -> None:
    sheet.score("", scored(1, [1.0, 0.75, 0.5]))
    steps = sheet.page.locator(".solution .step")
    expect(steps).to_have_count(3)
    colours = steps.evaluate_all("steps => steps.map(step => getComputedStyle(step).backgroundColor)")
    assert len(set(colours)) == 3


def test_a_slide_of_alpha_votes_again(sheet: Sheet, running: Running) -> None:
    sheet.score("", *SPLIT)
    sheet.tile("wrf")
    for alpha in (0.0, 0.2, 0.5, 0.8, 1.0):
        sheet.slide_and_vote(alpha)
        outcome = running.post("/vote/wrf", {"solutions": SPLIT, "alpha": alpha}).json()
        assert sheet.elected("wrf") == outcome["answer"]
        lead = "It is a tie" if outcome["tie"] else f"leads the next answer by {outcome['margin']:.3f} (combined)"
        expect(sheet.page.locator("#explanation")).to_contain_text(lead)
        expect(sheet.page.locator("#measures tr").nth(1)).to_contain_text(f"{outcome['candidates'][0]['score']:.3f}")
    assert {sheet.elected("wrf"), sheet.elected("majority")} == {"1", "2"}


def test_a_vote_is_explained(sheet: Sheet) -> None:
    sheet.score("", *SPLIT, {"steps": ["I can't tell."], "answer": "", "step_scores": [0.3]})
    explanation = sheet.page.locator("#explanation")
    for strategy, words in {
        "majority": "has 3 of 6 candidates; no answer has more",
        "prm": "solution 4 with 0.800",
        "hmr": "at least half: the majority decides",
        "wrf": "0.50 × 0.571 + 0.50 × 1.000 = 0.786",
        "weighted": "highest sum of rewards, 1.500",
    }.items():
        sheet.choose(strategy)
        expect(explanation).to_contain_text(words)
        expect(explanation).to_contain_text("1 of the 6 candidates has no answer")
    rows = sheet.page.locator(".class")
    expect(rows).to_have_count(3)
    assert "3 of 6" in rows.first.inner_text()
    expect(rows.nth(1)).to_contain_text("solution 4")
    rows.nth(1).get_by_role("link", name="4").click()
    expect(sheet.page.locator("#solution-4")).to_be_in_viewport()


def test_a_tie_is_told(sheet: Sheet) -> None:
    sheet.score("", scored(1, [0.5]), scored(2, [0.5]))
    assert all("tie" in sheet.tile(strategy).split() for strategy in STRATEGIES)
    expect(sheet.page.locator("#winner")).to_contain_text("by a tie")
    expect(sheet.page.locator("#story")).to_contain_text("The steps leave a tie, and the first candidate decides: 1.")
    expect(sheet.page.locator("#explanation")).to_contain_text("It is a tie between 2 answers")
    sheet.score("", scored(1, [0.5]), scored(1, [0.7]))
    expect(sheet.page.locator("#explanation")).to_contain_text("wins without a vote")


def test_another_threshold_needs_no_request(sheet: Sheet) -> None:
    sheet.score("", *SPLIT)
    sheet.tile("wrf")
    before = len(sheet.requests)
    sheet.page.locator("#options summary").click()
    card = sheet.solution(3)
    expect(card.locator(".badge")).to_have_count(0)
    sheet.page.get_by_label("Steps below this are errors").fill("0.85")
    sheet.page.get_by_label("Steps below this are errors").blur()
    expect(card.locator(".step").nth(1).locator(".badge")).to_have_text("first error")
    expect(sheet.solution(2).locator(".vote")).to_contain_text("elected")
    expect(sheet.page.locator("#story")).to_contain_text("5 of 5 solutions have a mistake")
    assert len(sheet.requests) == before


@pytest.mark.parametrize("answered", [True, False])
def test_another_reward_runs_no_model(sheet: Sheet, running: Running, answered: bool) -> None:
    candidates = [["a", "b", f"The answer is {k}." if answered else "Who knows?"] for k in (1, 1, 2)]
    sheet.score(KNOWN, *candidates)
    expect(sheet.page.locator(".solution")).to_have_count(3)
    if not answered:
        sheet.complaint()
    sheet.page.locator("#options summary").click()
    for aggregate in ("mean", "product", "last", "min"):
        with sheet.page.expect_response("**/score_steps") as response:
            sheet.page.get_by_label("Solution reward").select_option(aggregate)
        assert response.value.json()["usage"]["computed_tokens"] == 0
        body = {"problem": KNOWN, "solutions": candidates, "aggregate": aggregate}
        expected = running.post("/score_steps", body).json()["solutions"]
        for k, solution in enumerate(expected):
            expect(sheet.solution(k).locator(".facts")).to_contain_text(f"reward {percent(solution['reward'])}")
        if answered:
            sheet.voted()
            votes = running.post("/vote/compare", body).json()["strategies"]
            for strategy in STRATEGIES:
                assert sheet.elected(strategy) == votes[strategy]["answer"]


def test_another_model_scores_anew(browser: Browser) -> None:
    models = {
        name: FakeEngine(name=name, scores=lambda encoded, score=score: [score] * len(encoded.positions))
        for name, score in (("low", 0.25), ("high", 0.75))
    }
    with serving(models) as server:
        sheet = Sheet(browser.new_page(), server.url).open()
        sheet.score(PROBLEM, "The answer is 1.", "The answer is 2.")
        number = sheet.page.locator(".solution .chip").first
        expect(number).to_have_text("25%")
        for choice, score in (("high", "75%"), ("mean of all 2", "50%"), ("low", "25%")):
            sheet.page.locator("#model").select_option(label=choice)
            expect(number).to_have_text(score)
        sheet.page.close()
        assert sheet.complaints == []


def test_candidates_are_written_in_cards(sheet: Sheet) -> None:
    first, second = scored(1, [0.9]), "Step 1: a.\nThe answer is 2."
    sheet.score(KNOWN, first, second)
    cards = sheet.page.locator("#cards textarea")
    expect(cards).to_have_count(2)
    expect(cards.first).to_have_value("Step 1 of the way.")
    expect(sheet.page.locator("#outcome")).not_to_have_class("old")
    sheet.press("+ candidate")
    expect(cards.last).to_be_focused()
    expect(sheet.page.locator("#count")).to_have_text("2 candidates")  # a blank one is none
    cards.last.fill("The answer is\n===\n3.")
    expect(sheet.page.locator("#count")).to_have_text("3 candidates")
    expect(sheet.page.locator("#outcome")).to_have_class("old")
    with sheet.page.expect_request("**/score_steps") as sent:
        sheet.press("Score and vote")
    # a card in which nobody has written keeps its scores
    assert sent.value.post_data_json["solutions"] == [first, second, "The answer is\n===\n3."]
    sheet.settled()
    cards.first.fill("The answer is 4.")
    sheet.page.get_by_role("button", name="Remove this candidate").nth(1).click()
    expect(cards).to_have_count(2)
    with sheet.page.expect_request("**/score_steps") as sent:
        sheet.press("Score and vote")
    assert sent.value.post_data_json["solutions"] == ["The answer is 4.", "The answer is\n===\n3."]
    sheet.settled()


@pytest.mark.parametrize("layout", ["candidates", "request", "texts"])
def test_a_hundred_candidates_are_uploaded(sheet: Sheet, layout: str) -> None:
    texts = [f"Step 1: {k}.\n\nThe answer is {k % 7}." for k in range(100)]
    content = {
        "candidates": "\n".join(json.dumps(text) for text in texts),
        "request": json.dumps({"problem": PROBLEM, "solutions": texts}, indent=1),
        "texts": "\n=====\n".join(texts),
    }[layout]
    sheet.page.get_by_label("Problem", exact=True).fill(PROBLEM)
    file = {"name": "candidates.jsonl", "mimeType": "application/json", "buffer": content.encode()}
    sheet.page.locator("#file").set_input_files([file])  # type: ignore[list-item]
    expect(sheet.page.locator("#count")).to_have_text("100 candidates")
    sheet.press("Score and vote")
    expect(sheet.page.locator(".solution")).to_have_count(100)
    expect(sheet.page.locator(".class").first).to_contain_text("15 of 100")
    assert sheet.solution(99).locator(".step").count() == 2


def test_one_of_several_uploaded_questions_is_chosen(sheet: Sheet) -> None:
    records = [
        {
            "id": str(k),
            "problem": f"Question {k}?",
            "gold": "1",
            "candidates": [{"text": "\\boxed{1}", "tokens": 3}] * k,
        }
        for k in (1, 2, 3)
    ]
    content = "".join(json.dumps(record) + "\n" for record in records).encode()
    sheet.page.locator("#file").set_input_files(
        [{"name": "samples.jsonl", "mimeType": "application/json", "buffer": content}]
    )
    expect(sheet.page.get_by_label("Problem", exact=True)).to_have_value("Question 1?")
    sheet.unfold("#paste")
    sheet.page.get_by_label("Question in the file").select_option("2")
    expect(sheet.page.get_by_label("Problem", exact=True)).to_have_value("Question 3?")
    sheet.press("Score and vote")
    expect(sheet.page.locator(".solution")).to_have_count(3)


def test_what_can_t_be_scored_keeps_its_place_and_says_why(browser: Browser) -> None:
    candidates = [scored(1, [0.5]), {"steps": ["a" * 1000], "answer": "2"}, "", {"steps": ["a"] * 3, "answer": "2"}]
    with serving(FakeEngine(max_tokens=500), max_steps=2) as server:
        expected = server.post("/vote/compare", {"problem": PROBLEM, "solutions": candidates}).json()
        sheet = Sheet(browser.new_page(), server.url).open()
        sheet.score(PROBLEM, *candidates)
        for strategy in STRATEGIES:
            assert sheet.elected(strategy) == expected["strategies"][strategy]["answer"]
        assert {sheet.elected("majority"), sheet.elected("prm")} == {"1", "2"}
        expect(sheet.solution(0)).not_to_contain_text("not scored")
        expect(sheet.solution(1)).to_contain_text("✗ not scored: Solution 2 with its problem takes")
        expect(sheet.solution(2)).to_contain_text("is blank")
        expect(sheet.solution(3)).to_contain_text("more than 2 steps")
        expect(sheet.solution(3).locator(".step.unscored")).to_have_count(3)
        facts = sheet.solution(3).locator(".facts")
        facts.scroll_into_view_if_needed()  # what is off the screen has no rendered text
        until(lambda: "answer 2 reward none" in " ".join(facts.inner_text().split()))
        expect(sheet.page.locator("#notices")).to_contain_text("3 of 4 solutions could not be scored")
        expect(sheet.page.locator("#status")).to_have_text("1 candidate came with scores: no model was run.")
        sheet.page.close()
        assert sheet.complaints == []


def test_answers_that_were_compared_as_text_are_named(sheet: Sheet) -> None:
    def as_text(route: Route) -> None:
        route.fulfill(json=route.fetch().json() | {"compared_as_text": [0, 2, 4]})

    sheet.page.route("**/vote/compare", as_text)
    sheet.score("", *SPLIT)
    expect(sheet.page.locator("#notices")).to_contain_text(
        "The answer of solution 1, solution 3, and solution 5 could not be compared"
    )


def test_how_texts_are_read_is_part_of_the_request(sheet: Sheet) -> None:
    with sheet.page.expect_request("**/score_steps") as first:
        sheet.score("", *SPLIT)
    sheet.tile("wrf")
    assert first.value.post_data_json.keys() == {"solutions", "aggregate", "threshold"}
    sheet.page.locator("#options summary").click()
    with sheet.page.expect_request("**/score_steps") as second:
        sheet.page.get_by_label("Split solutions").select_option("line")
    assert second.value.post_data_json == first.value.post_data_json | {"split": "line"}
    with sheet.page.expect_request("**/score_steps") as third:
        sheet.page.get_by_label("Find answers").select_option("choice")
    assert third.value.post_data_json == second.value.post_data_json | {"extraction": "choice"}


def test_wrf_is_taken_by_shares(sheet: Sheet, browser: Browser, running: Running) -> None:
    solutions = [*(scored(1, [0.90]) for _ in range(49)), scored(2, [0.91])]
    sheet.score("", *solutions)
    sheet.tile("wrf")
    sheet.slide_and_vote(0.6)
    assert sheet.elected("wrf") == "2"
    sheet.unfold("#why")
    sheet.page.get_by_label("Normalisation").select_option("share")
    sheet.voted()
    outcome = running.post("/vote/wrf", {"solutions": solutions, "alpha": 0.6, "normalization": "share"}).json()
    assert sheet.elected("wrf") == outcome["answer"] == "1"
    expect(sheet.page.locator("#explanation")).to_contain_text("0.60 × 0.900 + 0.40 × 0.980 = 0.932")
    sheet.press("Copy as curl")
    expect(sheet.page.locator("#status")).to_contain_text("copied")
    assert '"normalization":"share"' in sheet.page.evaluate("navigator.clipboard.readText()")
    sheet.press("Copy link")
    expect(sheet.page.locator("#status")).to_contain_text("Link copied")
    address = sheet.page.evaluate("navigator.clipboard.readText()")
    other = Sheet(browser.new_page(), sheet.url).open(address.removeprefix(sheet.url + "/"))
    expect(other.page.locator("#normalization")).to_have_value("share")
    other.page.close()


def test_hmr_at_two_halves_asks_the_reward(sheet: Sheet) -> None:
    sheet.score("", scored(1, [0.5]), scored(2, [0.6]))
    sheet.choose("hmr")
    expect(sheet.page.locator("#explanation")).to_contain_text("No answer alone has half of the candidates")
    assert sheet.elected("hmr") == "2"


def test_without_any_answer_the_scores_are_shown(sheet: Sheet) -> None:
    sheet.score(PROBLEM, "I can't tell.", "Nor can I.")
    assert sheet.complaint()[0] == "no_answer"
    expect(sheet.page.locator(".solution")).to_have_count(2)
    expect(sheet.page.locator("#votes")).to_be_hidden()


def test_a_link_brings_the_input_back_and_scores_nothing(sheet: Sheet, browser: Browser) -> None:
    sheet.score("Größe? \U0001f914", *SPLIT)
    sheet.tile("wrf")
    sheet.slide_and_vote(0.25)
    sheet.choose("hmr")
    sheet.page.locator("#options summary").click()
    sheet.page.get_by_label("API key").fill("my-secret-key")
    sheet.press("Copy link")
    expect(sheet.page.locator("#status")).to_contain_text("copied")
    address = sheet.page.evaluate("navigator.clipboard.readText()")
    before = sheet.page.get_by_label("Candidate solutions").input_value()
    other = Sheet(browser.new_page(), sheet.url).open(address.removeprefix(sheet.url + "/"))
    expect(other.page.locator("#status")).to_contain_text("filled in")
    expect(other.page.get_by_label("Problem", exact=True)).to_have_value("Größe? \U0001f914")
    expect(other.page.get_by_label("Candidate solutions")).to_have_value(before)
    expect(other.page.get_by_label("API key")).to_have_value("")
    assert not any("score_steps" in url for url in other.requests)
    other.press("Score and vote")
    assert other.tile("hmr")
    assert other.page.locator("#alpha").input_value() == "0.25"
    assert other.page.locator("input[value=hmr]").is_checked()
    other.page.close()
    assert "my-secret-key" not in address


def test_the_command_asks_the_same_vote(sheet: Sheet) -> None:
    sheet.score("It's $5, isn't it?\n`x`", *SPLIT, scored("it's", [0.2]))
    sheet.tile("wrf")
    sheet.slide_and_vote(0.8)
    sheet.press("Copy as curl")
    expect(sheet.page.locator("#status")).to_contain_text("copied")
    command = sheet.page.evaluate("navigator.clipboard.readText()")
    ran = subprocess.run(["sh", "-c", command], capture_output=True, check=True, timeout=30)
    vote = json.loads(ran.stdout)
    assert vote["strategy"] == "wrf"
    assert vote["answer"] == sheet.elected("wrf") == "2"
    expect(sheet.page.locator("#explanation")).to_contain_text(f"{vote['margin']:.3f} (combined)")


def test_without_a_clipboard_the_text_is_shown(browser: Browser, running: Running) -> None:
    context = browser.new_context()
    context.add_init_script("delete Navigator.prototype.clipboard")
    sheet = Sheet(context.new_page(), running.url).open()
    shown: list[str] = []

    def read(dialog: Dialog) -> None:
        shown.append(dialog.default_value)
        dialog.dismiss()

    sheet.page.on("dialog", read)
    sheet.press("Copy as curl")
    assert re.match(r"curl -s 'http.*vote/wrf' .*Moor Farm", shown[0])
    context.close()


def test_the_examples_are_problems_that_the_demonstration_knows(sheet: Sheet) -> None:
    problems = sheet.page.evaluate(
        "async () => (await import('./page/examples.js')).EXAMPLES.map(({ problem }) => problem)"
    )
    assert [parse(problem).answer for problem in problems] == [466, 83, 21]


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_shows_its_votes_at_once(sheet: Sheet, name: str) -> None:
    sheet.press(name)
    sheet.settled()
    assert sheet.tile("wrf")
    sheet.page.locator(".solution").first.scroll_into_view_if_needed()
    expect(sheet.page.locator(".solution .formula .katex-html").first).to_be_visible()


def test_candidates_are_read_back_as_they_were_written(sheet: Sheet) -> None:
    lists = [
        ["a", "b\n\nc"],
        ["a\n===\nb", "c"],
        ['"quoted"'],
        ['{"text": 1}', "x"],
        [["a", "b"], "c"],
        [{"steps": ["a"], "step_scores": [0.5]}],
        ["[1, 2]", "42"],
        ["line\r\nline"],
    ]
    read = sheet.page.evaluate(
        """async (lists) => {
          const { readCandidates, writeCandidates } = await import("./page/candidates.js");
          return lists.map((list) => readCandidates(writeCandidates(list)));
        }""",
        lists,
    )
    assert read == lists
