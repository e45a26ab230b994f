"""What people type first at a server that was just installed: elected right, or told as a tie; and a server that only
checks equations."""

from collections.abc import Iterator
from itertools import permutations

import pytest

from tests.fakes import upstream
from tests.server.gateway.harness import elected
from tests.server.harness import Running, ask, embedded, serving
from tests.support import MODELS, imported

COINS = "Zoe has 23 coins. Zoe buys 4 bags with 15 coins in each bag. How many coins does Zoe have now?"
SPELLINGS = {
    "as printed": "Step 1: 4 * 15 = {a}.\nStep 2: 23 + {a} = {b}. The answer is \\boxed{{{b}}}.",
    "no Step k": "4 * 15 = {a}.\n23 + {a} = {b}. The answer is \\boxed{{{b}}}.",
    "no box": "Step 1: 4 * 15 = {a}.\nStep 2: 23 + {a} = {b}. The answer is {b}.",
    "neither": "4 * 15 = {a}.\n23 + {a} = {b}. The answer is {b}.",
    "x for *": "Step 1: 4 x 15 = {a}.\nStep 2: 23 + {a} = {b}. The answer is \\boxed{{{b}}}.",
    "× for *": "Step 1: 4 × 15 = {a}.\nStep 2: 23 + {a} = {b}. The answer is \\boxed{{{b}}}.",
    "no blanks": "Step 1: 4*15={a}.\nStep 2: 23+{a}={b}. The answer is \\boxed{{{b}}}.",
    "words": "First, 4 bags of 15 coins are {a} coins.\n\nThen 23 + {a} = {b}, so Zoe has {b} coins.",
    "as a language model": "To find the total, first compute the coins in the bags: 4 * 15 = {a}.\n\nThen add the "
    "coins Zoe already had: 23 + {a} = {b}.\n\nThe answer is \\boxed{{{b}}}.",
    "colon": "Step 1: Bags: 4 * 15 = {a}\nStep 2: Total: 23 + {a} = {b}\nThe answer is \\boxed{{{b}}}.",
    "one line": "4 * 15 = {a}, 23 + {a} = {b}. The answer is {b}.",
    "no full stop": "Step 1: 4 * 15 = {a}\nStep 2: 23 + {a} = {b}\nThe answer is {b}",
}
"""One problem's solution as different people write it."""
FIRST_TRIES = [
    ("What is 12 * 12?", "12 * 12 = 144. The answer is 144.", "12 * 12 = 124. The answer is 124."),
    ("What is 15% of 80?", *(f"15% of 80 is 0.15 * 80 = {n}.\n\nThe answer is {n}." for n in (12, 14))),
    ("Solve 2x + 3 = 11.", "2x = 8\n\nx = 4", "2x = 14\n\nx = 7"),
    (
        "A train travels 60 km in 45 minutes. How fast is it in km/h?",
        "45 min = 0.75 h.\n\n60 / 0.75 = 80. \\boxed{80}",
        "60 / 45 = 1.33.\n\n1.33 * 60 = 75. \\boxed{75}",
    ),
    (
        "Natalia sold clips to 48 of her friends in April, and then she sold half as many clips in May. How many clips "
        "did Natalia sell altogether in April and May?",
        "48/2 = 24 in May.\n\n48 + 24 = 72. The answer is 72.",
        "48/2 = 26 in May.\n\n48 + 26 = 74. The answer is 74.",
    ),
    (
        "Tom has 5 apples. Tom buys 3 more apples. How many apples does Tom have now?",
        "5 + 3 = 8. The answer is 8.",
        "5 + 3 = 9. The answer is 9.",
    ),
    (
        "Zoe has 23 coins. Zoe finds 45 coins. How many coins does Zoe have now?",
        "23 + 45 = 68. The answer is 68.",
        "23 + 45 = 67. The answer is 67.",
    ),
    (COINS, *(f"4 * 15 = {a}.\n23 + {a} = {b}.\nThe answer is {b}." for a, b in ((60, 83), (50, 73)))),
]
TYPED = {f"first try {number}": each for number, each in enumerate(FIRST_TRIES, 1)} | {
    name: (COINS, form.format(a=60, b=83), form.format(a=50, b=73)) for name, form in SPELLINGS.items()
}
TRUE, FALSE, SILENT = "12 * 12 = 144.", "12 * 12 = 124.", "So it is."


@pytest.fixture(scope="module")
def default() -> Iterator[Running]:
    """`unprm serve` without options."""
    with serving(embedded()) as running:
        yield running


@pytest.fixture(scope="module")
def checks() -> Iterator[Running]:
    with serving({}, model=["checks"]) as running:
        yield running


@pytest.mark.parametrize("typed", TYPED)
def test_what_people_type_first_is_elected_right_or_told_as_a_tie(default: Running, typed: str) -> None:
    problem, *written = TYPED[typed]
    for order in permutations(written):
        right = order.index(written[0])
        body = {"problem": problem, "solutions": order}
        if typed == "words":  # two different answers, neither of them stated
            assert default.post("/vote", body).json()["code"] == "no_answer"
            continue
        votes = [default.post("/vote", body).json(), *default.post("/vote/compare", body).json()["strategies"].values()]
        scored = default.post("/score_steps", body).json()
        assert scored["demonstration"]["in_domain"] == (typed == "as printed")
        assert scored["solutions"][right]["first_error"] is None
        if typed == "first try 3":  # its wrong solution has no equation that is false by itself
            assert [vote["tied_answers"] for vote in votes] == [[each["answer"] for each in scored["solutions"]]] * 7
            continue
        if typed == "as printed":
            assert votes.pop(1)["tie"]  # the majority, which sees no reward
        assert [(vote["solution_index"], vote["supported"]) for vote in votes] == [(right, True)] * len(votes)
        assert scored["solutions"][1 - right]["first_error"] is not None


def test_steps_are_marked_and_no_reward_is_made_of_it(checks: Running) -> None:
    scored = checks.post("/score_steps", ask([TRUE, SILENT, FALSE], [SILENT])).json()
    assert (scored["model"], scored["demonstration"]) == ("checks", None)
    marked, silent = scored["solutions"]
    assert (marked["step_scores"], marked["first_error"], marked["reward"]) == ([1.0, None, 0.0], 2, None)
    assert (silent["step_scores"], silent["first_error"], silent["reward"]) == ([None], None, None)


def test_marks_break_ties_and_decide_nothing_else(checks: Running) -> None:
    wrong, right = [FALSE, "\\boxed{124}"], [TRUE, "\\boxed{144}"]
    for path in ("/vote", "/vote/prm", "/vote/wrf", "/vote/majority"):
        tied = checks.post(path, ask(wrong, right)).json()
        assert (tied["strategy"], tied["decided_by"], tied["answer"], tied["tie"]) == (
            "majority",
            "majority",
            "144",
            True,
        )
        assert (tied["supported"], tied.get("notes")) == (True, None)
        assert ("why_majority" in tied) == (path != "/vote/majority")
        outvoted = checks.post(path, ask(wrong, right, wrong)).json()
        assert (outvoted["answer"], outvoted["supported"], outvoted["tie"]) == ("124", False, False)
        assert outvoted["notes"] == [
            "every solution with the elected answer has a marked error; solution 1, with another answer, has none"
        ]
    votes = checks.post("/vote/compare", ask(wrong, right)).json()["strategies"]
    assert {(name, vote["answer"]) for name, vote in votes.items()} >= {("hmr", "144"), ("prm", "144"), ("wrf", "144")}


def test_of_the_elected_answer_a_solution_without_an_error_is_shown(checks: Running) -> None:
    voted = checks.post("/vote", ask([FALSE, "\\boxed{1}"], [TRUE, "\\boxed{1}"], ["\\boxed{2}"])).json()
    assert (voted["answer"], voted["solution_index"], voted["supported"]) == ("1", 1, True)


def test_scores_that_are_sent_decide(checks: Running) -> None:
    rated = [{"text": text, "step_scores": [score]} for text, score in (("\\boxed{1}", 0.9), ("\\boxed{2}", 0.1))]
    assert checks.post("/vote/prm", ask(*rated)).json()["strategy"] == "prm"


def test_without_an_answer_nothing_is_elected(checks: Running) -> None:
    assert checks.post("/vote/prm", ask([TRUE], [FALSE])).json()["code"] == "no_answer"


def test_the_server_says_what_it_is(checks: Running) -> None:
    about = checks.get("/model").json()
    assert (about["name"], about["engine"], about["models"], about["default_strategy"]) == (
        "checks", "checks", [], "majority",
    )  # fmt: skip
    assert checks.post("/vote", ask(["\\boxed{1}"], model="checks")).json()["model"] == "checks"
    assert checks.get("/readyz").json() == {"status": "ok"}
    assert not imported("-c", "import server.models.load, unprm.checks") & MODELS


def test_a_gateway_tells_whether_the_elected_answer_is_supported() -> None:
    wrong, right = (f"{step}\n\n\\boxed{{{n}}}" for step, n in ((FALSE, 124), (TRUE, 144)))
    terms = {"stable": 1, "round": 3}
    with upstream(wrong, right, wrong) as sampled, serving({}, model=["checks"], upstream_url=sampled.url) as running:
        answer, report = elected(running, budget=3, strategy="wrf", **terms)
    assert answer.choices[0].message.content == wrong
    assert (report["supported"], report["strategy"], report["decided_by"]) == (False, "wrf", "majority")
    assert any("every solution with the elected answer has a marked error" in note for note in report["notes"])


@pytest.mark.parametrize(("second", "tie"), [(0.9 - 4e-4, True), (0.9 - 6e-4, False)])
def test_a_lead_that_is_shown_as_zero_is_a_tie(server: Running, second: float, tie: bool) -> None:
    rated = [{"text": f"\\boxed{{{n}}}", "step_scores": [score]} for n, score in ((1, second), (2, 0.9))]
    voted = server.post("/vote/prm", ask(*rated)).json()
    assert (voted["answer"], voted["tie"], voted["tied_answers"]) == ("2", tie, ["2", "1"] if tie else [])
