"""Requests for scores and votes, and the whole responses of a server whose models are fake.

Requests bring their own id, and the server's clock stands still: nothing has to be left out.
"""

import json
import time
from pathlib import Path
from typing import Any

from fastapi.testclient import TestClient

from server.app import create_app
from server.settings import Settings
from tests.fake_engine import FakeEngine
from tests.golden.kept import pretty, rounded
from tests.server.calibrations import calibration

PROBLEM = "Zoe has 23 coins. Zoe buys 4 bags with 15 coins in each bag. How many coins does Zoe have now?"
UNKNOWN = "What is the sum of the first nine primes?"
MAX_TOKENS, MAX_STEPS, MAX_SOLUTIONS = 300, 6, 8

Body = dict[str, Any]


def _text(answer: object, *before: str) -> str:
    return "\n\n".join([*before, f"So the answer is \\boxed{{{answer}}}."])


def _scored(answer: object, *scores: float, **more: Any) -> Body:
    """A candidate with step scores."""
    steps = [f"Step {number}: some of it." for number in range(1, len(scores))]
    return {"steps": [*steps, _text(answer)], "step_scores": list(scores), **more}


def _sure(answer: object, confidence: float | None = None, **more: Any) -> Body:
    return {"text": _text(answer), **({} if confidence is None else {"confidence": confidence}), **more}


def _asked(*solutions: Any, problem: str = PROBLEM, **more: Any) -> Body:
    return {"problem": problem, "solutions": list(solutions), **more}


def _given(*solutions: Any, **more: Any) -> Body:
    return {"solutions": list(solutions), **more}


def _trajectory(said: str, query: str = "capital of Peru", **more: Any) -> Body:
    function = {"name": "search", "arguments": json.dumps({"query": query})}
    messages = [
        {"role": "user", "content": "What is the capital of Peru?"},
        {"role": "assistant", "content": None, "tool_calls": [{"id": "c1", "type": "function", "function": function}]},
        {"role": "tool", "tool_call_id": "c1", "content": "Lima. " * 20},
        {"role": "assistant", "content": said},
    ]
    return {"messages": messages, **more}


FIVE = (
    _scored(83, 0.9, 0.8, id="a"),
    _scored(73, 0.99, 0.95, id="b"),
    _scored("83.0", 0.7, 0.4),
    _scored("\\frac{166}{2}", 0.6, 0.85),
    _scored(60, 0.2),
)
"""Three of five agree on 83; 73 has the highest reward."""
SPLIT = (_scored(83, 0.9, 0.8), _scored(73, 0.99, 0.95), _scored(83, 0.7, 0.4), _scored(60, 0.2), _scored(61, 0.3))
"""No answer has half."""
CONFIDENT = (
    _sure(83, 0.31),
    _sure(73, 0.9),
    _sure(83, token_logprobs=[-0.01, -0.2, -0.05]),
    _sure(60),
    {"text": "I can't tell.", "confidence": 0.99},
)
TEXTS = (_text(83, "4 * 15 = 60.", "23 + 60 = 83."), _text(73, "4 * 15 = 50."), _text(83), _text(70, "4 + 15 = 19."))
TIED = (_scored(1, 0.5, 0.25), _scored(2, 0.25, 0.5), _scored(2, 0.75), _scored(1, 0.75))

VOTES: dict[str, dict[str, tuple[str, Body]]] = {
    "strategies": {
        "by answers alone": ("/vote/majority", _given(*FIVE)),
        "the highest reward": ("/vote/prm", _given(*FIVE)),
        "a majority that needs no rewards": ("/vote/hmr", _given(*FIVE)),
        "no majority, so rewards": ("/vote/hmr", _given(*SPLIT)),
        "reward and frequency": ("/vote/wrf", _given(*FIVE)),
        "the sum of rewards": ("/vote/weighted", _given(*FIVE)),
        "the highest reward of frequent answers": ("/vote/best_of_majority", _given(*SPLIT)),
        "confidences": ("/vote/cisc", _given(*CONFIDENT)),
        "the default": ("/vote", _given(*FIVE)),
        "all at once": ("/vote/compare", _given(*FIVE)),
        "all at once, with confidences": ("/vote/compare", _asked(*CONFIDENT)),
    },
    "settings": {
        "alpha": ("/vote/wrf", _given(*FIVE, alpha=0.9)),
        "shares": ("/vote/wrf", _given(*FIVE, normalization="share")),
        "temperature": ("/vote/cisc", _given(*CONFIDENT, temperature=0.05)),
        "a share that one answer has": ("/vote/best_of_majority", _given(*FIVE, min_share=0.5)),
        "the last step": ("/vote/wrf", _given(*FIVE, aggregate="last")),
        "the product of steps": ("/vote/weighted", _given(*FIVE, aggregate="product")),
        "the mean of steps": ("/vote/prm", _given(*FIVE, aggregate="mean")),
        "a threshold of errors": ("/vote/prm", _given(*FIVE, threshold=0.85)),
        "log-odds": ("/vote/prm", _given(*FIVE[:2], log_odds=True)),
    },
    "ties": {
        "of two answers": ("/vote/majority", _given(*TIED)),
        "of the highest rewards": ("/vote/prm", _given(*TIED)),
        "of two with half each": ("/vote/hmr", _given(*TIED)),
        "of sums": ("/vote/wrf", _given(*TIED)),
        "of all votes": ("/vote/compare", _given(*TIED)),
    },
    "abstention": {
        "some state no answer": ("/vote/wrf", _asked(*TEXTS[:2], "I can't tell.", "Nor can I.")),
        "only one answer": ("/vote/hmr", _asked(TEXTS[0], "I can't tell.", "Nor can I.")),
        "unanimous": ("/vote/wrf", _asked(TEXTS[0], TEXTS[2])),
        "nobody states an answer": ("/vote/majority", _given("I can't tell.", ["Nor", "can I."])),
        "one is too long for the model": ("/vote/prm", _asked(*TEXTS[:2], _text(83, "word " * 80))),
        "one is blank, one has too many steps": ("/vote/prm", _asked(TEXTS[0], " ", _text(73, *"abcdef"))),
        "one that can't be scored is refused": ("/vote/prm", _asked(*TEXTS[:2], " ", on_invalid="refuse")),
        "none can be scored": ("/vote/prm", _asked(_text(1, "word " * 80), _text(2, "word " * 80))),
    },
    "models": {
        "scores": ("/score_steps", _asked(*TEXTS, log_odds=True)),
        "a vote": ("/vote/wrf", _asked(*TEXTS)),
        "all votes": ("/vote/compare", _asked(*TEXTS)),
        "some scores given": ("/vote/prm", _asked(*TEXTS[:2], _scored(73, 0.9, 0.95))),
        "two models": ("/vote/wrf", _asked(*TEXTS, model=["fake", "second"])),
        "a demonstration in its domain": ("/vote", _asked(*TEXTS, model="demonstration")),
        "a demonstration elsewhere": ("/vote", _asked(*TEXTS, problem=UNKNOWN, model="demonstration")),
        "a demonstration that is named elsewhere": (
            "/vote/prm",
            _asked(*TEXTS[:2], problem=UNKNOWN, model="demonstration"),
        ),
        "what a model reads": ("/preview", {"problem": "1 + 1?", "solution": "2.\n\n\\boxed{2}"}),
    },
    "reading": {
        "equal answers": ("/vote/majority", _given("Answer: 1/2", "Answer: 0.5", "#### 50 %", "Answer: $\\frac12$")),
        "units and names": ("/vote/majority", _given("Answer: 90 minutes", "Answer: 1.5 hours", "Answer: t = 90")),
        "boxes alone": ("/vote/majority", _given(_text(5), "The answer is 6.", extraction="boxed")),
        "the last number": ("/vote/majority", _given("It was 5, then 6", "Maybe 6?", extraction="last_number")),
        "options": ("/vote/majority", _given("It is (B).", "Answer: B", "I choose C.", extraction="choice")),
        "answers sent": ("/vote/majority", _given({"text": _text(5), "answer": "6"}, "Answer: 6", "Answer: 5")),
        "steps by line": ("/score_steps", _asked("one\ntwo\n\nthree \\boxed{3}", split="line")),
        "steps by paragraph": ("/score_steps", _asked("one\ntwo\n\nthree \\boxed{3}", split="paragraph")),
    },
    "trajectories": {
        "answers": ("/vote/majority", {"trajectories": [_trajectory("Answer: 5"), _trajectory("Answer: 7")]}),
        "rewards without answers": (
            "/vote/wrf",
            {"trajectories": [_trajectory("It may be Lima."), _trajectory("I gave up.", "Peru", id="second")]},
        ),
        "cut, and judged before": (
            "/score_steps",
            {"trajectories": [_trajectory("Lima.")], "observation_tokens": 5, "evidence": "before"},
        ),
    },
    "risk": {
        "accepted": ("/vote/majority", _given(*TEXTS[:3], TEXTS[0], risk=0.05)),
        "not sure enough": ("/vote/wrf", _asked(*TEXTS, risk=0.05)),
        "outside of what is calibrated": ("/vote/prm", _asked(TEXTS[0], risk=0.05)),
        "all votes": ("/vote/compare", _asked(*TEXTS, risk=0.4)),
        "settings of another calibration": ("/vote/wrf", _asked(*TEXTS, risk=0.05, alpha=0.25)),
    },
    "errors": {
        "no candidates": ("/vote/wrf", _asked()),
        "both forms": ("/vote/prm", _asked({"text": "a", "steps": ["a"]})),
        "no form": ("/vote/prm", _asked(7, {"id": "x"})),
        "an unknown field": ("/vote/majority", _given(*FIVE[:1], alpha=0.5)),
        "values out of range": ("/vote/wrf", _given(_scored(1, 1.5), alpha=2)),
        "fewer scores than steps": ("/vote/prm", _given({"text": "a\n\nb", "step_scores": [0.5]})),
        "no problem": ("/vote/prm", _given(*TEXTS)),
        "no problem where rewards decide": ("/vote/hmr", _given(*TEXTS[:2])),
        "no confidences": ("/vote/cisc", _given(*TEXTS)),
        "too many candidates": ("/vote/majority", _given(*["a"] * 9)),
        "an unknown model": ("/vote/prm", _asked(*TEXTS, model="third")),
        "an unknown vote": ("/vote/best", _asked(*TEXTS)),
    },
}
"""By file and title: an address and a request."""


def votes(directory: Path) -> dict[str, str]:
    """Each request with its status and its response."""
    models = {
        "fake": FakeEngine(max_tokens=MAX_TOKENS),
        "second": FakeEngine(name="second", scores=lambda item: [0.5] * len(item.positions), max_tokens=MAX_TOKENS),
        "demonstration": FakeEngine(demo=True),
    }
    settings = Settings(vote_calibration=calibration(directory), max_steps=MAX_STEPS, max_solutions=MAX_SOLUTIONS)
    with TestClient(create_app(settings, models, clock=lambda: 0.0)) as client:
        while client.get("/readyz").status_code != 200:
            time.sleep(0.01)
        return {
            f"{name}.txt": "\n".join(_answered(client, title, *asked) for title, asked in cases.items())
            for name, cases in VOTES.items()
        }


def _answered(client: TestClient, title: str, path: str, body: Body) -> str:
    content = json.dumps(body, ensure_ascii=False)
    response = client.post(path, content=content, headers={"Content-Type": "application/json", "X-Request-ID": "0"})
    shown = pretty(json.loads(rounded(response.text)))
    return f"# {title}\nPOST {path} {content}\n{response.status_code} {response.headers['content-type']}\n{shown}\n"
