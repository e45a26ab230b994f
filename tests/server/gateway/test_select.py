"""The vote `select` in the gateway: the upstream itself compares, where the majority is unsettled."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.fakes import Refusal, Seen, Upstream, openai_server
from tests.judge_server import MODEL, answered, choice, judging
from tests.server.gateway.harness import ask, elected, gateway
from tests.server.harness import Running
from tests.server.test_select import candidates, prefers_right, writes_right
from tests.support import until

TEXTS = [f"The answer is {each}." for each in (41, 41, 42, 43)]


@contextmanager
def writing(
    texts: list[str], compare: Callable[[Any], Any] = prefers_right, **options: Any
) -> Iterator[tuple[Running, list[Seen]]]:
    """A gateway before an upstream that writes these texts, and compares as scripted."""

    def answer(body: Any) -> Any:
        if "<candidate " in str(body["messages"]):
            return compare(body)
        return answered(*({**choice(text), "index": k, "finish_reason": "stop"} for k, text in enumerate(texts)))

    with openai_server(answer) as (url, seen), gateway(Upstream([], url=url), **options) as running:
        yield running, seen


def comparisons(seen: list[Seen]) -> list[Any]:
    return [each.body for each in seen if candidates(each.body)]


def vote(running: Running, **unprm: Any) -> tuple[Any, dict[str, Any]]:
    return elected(running, **{"strategy": "select", "budget": 4, **unprm})


@pytest.mark.parametrize(("compare", "score"), [(prefers_right, 0.7), (writes_right, 1.0)])
def test_the_upstream_compares_where_the_majority_is_unsettled(compare: Any, score: float) -> None:
    with writing(TEXTS, compare) as (running, seen):
        answer, report = vote(running)
        assert answer.choices[0].message.content == TEXTS[2]
        assert (report["answer"], report["decided_by"], report["strategy"]) == ("42", "comparison", "select")
        assert report["candidates"][0]["score"] == pytest.approx(score)
        asked = comparisons(seen)
        assert report["selection"]["calls"] == len(asked) == 4
        assert report["selection"]["tokens"] == report["usage"]["tokens"] == 4 * 51
        assert all(len(candidates(each)) == 3 and each["model"] == "m" for each in asked)
        assert all("How many" in str(each) or "answer" in str(each) for each in asked)


def test_the_models_name_chooses_it_and_a_stream_has_it() -> None:
    with writing(TEXTS) as (running, _):
        chunks = ask(running, model="select-4@m", stream=True)
        assert "".join(each.choices[0].delta.content or "" for each in chunks if each.choices) == TEXTS[2]


def test_a_settled_majority_is_not_compared_unless_it_is_asked_for() -> None:
    with writing([TEXTS[0]] * 3 + [TEXTS[2]]) as (running, seen):
        _, report = vote(running)
        assert (report["answer"], report["decided_by"], comparisons(seen)) == ("41", "majority", [])
        assert report["selection"]["why"].startswith("the majority leads by 0.50")
        _, report = vote(running, select_if="always")
        assert (report["answer"], len(comparisons(seen))) == ("42", 2)


def test_one_answer_is_not_compared() -> None:
    with writing([TEXTS[2]] * 4) as (running, seen):
        _, report = vote(running, select_if="always")
        assert (report["decided_by"], comparisons(seen)) == ("unanimous", [])


def test_texts_without_answers_are_compared() -> None:
    names = ("Anna", "Bert 42", "Cleo")
    texts = [f"{each} came by, said what there was to say, and left again. Nobody knows why." for each in names]
    with writing(texts) as (running, _):
        answer, report = vote(running, budget=3)
        assert answer.choices[0].message.content == texts[1]
        assert (report["answer"], report["decided_by"], report["solution_index"]) == (None, "comparison", 1)


@pytest.mark.parametrize(
    "reply", [Refusal(500, {"error": {"message": "no"}}), Refusal(400, {"error": {"message": "no"}}),
              Refusal(429, {"error": {"message": "no"}}), answered(choice("Hm."))]
)  # fmt: skip
def test_where_it_fails_the_majority_decides_and_the_report_says_so(reply: Any) -> None:
    with writing(TEXTS, lambda body: reply) as (running, _):
        answer, report = vote(running)
        assert (answer.choices[0].message.content, report["decided_by"]) == (TEXTS[0], "majority")
        assert any(each.startswith("the comparison failed, and the majority decided") for each in report["notes"])


def test_a_server_without_log_probabilities_is_asked_without_them() -> None:
    def compare(body: Any) -> Any:
        if "logprobs" in body:
            return Refusal(400, {"error": {"message": "logprobs are not supported"}})
        return writes_right(body)

    with writing(TEXTS, compare) as (running, seen):
        assert vote(running)[1]["answer"] == "42"
        before = len(comparisons(seen))
        assert vote(running)[1]["answer"] == "42"
        assert len(comparisons(seen)) - before == 4  # it is known by now


def test_a_judge_compares_if_there_is_one() -> None:
    with judging(prefers_right) as judge, writing(TEXTS, judge_url=judge.url, judge_model=MODEL) as (running, seen):
        until(lambda: running.get("/readyz").status_code == 200)
        judge.requests.clear()
        _, report = vote(running)
        assert (report["answer"], len(judge.requests), comparisons(seen)) == ("42", 4, [])
