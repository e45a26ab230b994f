"""Votes on what is no mathematics, with OpenAI's client."""

from typing import Any

from tests.fakes import upstream
from tests.server.gateway.harness import ask, elected, gateway

MAJORITY: dict[str, Any] = {"strategy": "majority", "stable": 1, "round": 8}


def test_labels_and_short_answers_are_voted_on() -> None:
    with upstream("No", "Yes", "**Yes.**") as reasoner, gateway(reasoner) as running:
        answer, report = elected(running, "Is 7 prime? Reply yes or no.", budget=3, **MAJORITY)
        voted = running.post("/vote/majority", {"solutions": ["No", "Yes", "**Yes.**"]}).json()
    assert answer.choices[0].message.content == "Yes"
    assert (report["answer"], report["share"], report["compared_as"]) == ("Yes", 2 / 3, "short_text")
    assert (voted["answer"], voted["solution_index"], voted["compared_as"]) == ("Yes", 1, "short_text")


def test_a_cut_reply_is_no_short_answer() -> None:
    with upstream("New", "New York", "New York.", cut={0}) as reasoner, gateway(reasoner) as running:
        _, report = elected(running, budget=3, **MAJORITY)
    assert (report["answer"], report["without_answer_count"]) == ("New York", 1)


LABELS = ['{"label": "ham", "why": "a"}', '{"label": "spam", "why": "b"}', '{"why": "c", "label": "spam"}']


def formed(schema: dict[str, Any]) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "v", "schema": schema}}


def test_json_is_voted_on_by_the_fields_that_the_request_names() -> None:
    with upstream(*LABELS) as reasoner, gateway(reasoner) as running:
        answer, report = elected(running, budget=3, vote_on=["/label"], **MAJORITY)
        _, whole = elected(running, budget=3, **MAJORITY)
        _, neither = elected(running, budget=3, vote_on=["/lable"], **MAJORITY)
    assert answer.choices[0].message.content == LABELS[1]
    assert (report["answer"], report["share"], report["compared_as"]) == ('"spam"', 2 / 3, "json")
    assert (whole["tie"], len(whole["candidates"])) == (True, 3)
    assert (neither["answer"], neither["without_answer_count"]) == (None, 3)
    assert neither["notes"][0].startswith("no candidate is JSON with all that vote_on points to; the first")


def test_lists_whose_items_the_response_format_calls_unique_have_no_order() -> None:
    texts = ['{"tags": ["x"]}', '{"tags": ["a", "b"]}', '{"tags": ["b", "a"]}']
    schema = {"type": "object", "properties": {"tags": {"type": "array", "uniqueItems": True}}}
    options = {"extra_body": {"unprm": {"budget": 3, **MAJORITY}}}
    with upstream(*texts) as reasoner, gateway(reasoner) as running:
        answer = ask(running, response_format=formed(schema), **options)
        ordered = ask(running, response_format=formed({"type": "object"}), **options)
        assert reasoner.bodies[0]["response_format"] == formed(schema)
    assert (answer.choices[0].message.content, answer.unprm["compared_as"]) == (texts[1], "json")
    assert ordered.unprm["tie"]


def test_json_in_a_sentence_is_read_where_the_request_wants_json() -> None:
    texts = [  # none is JSON as a whole: one that is would keep the request's terms, and count before these
        'I say {"label": "ham"}.',
        'Sure, here it is: {"label": "spam", "of": [1]}. Anything else? See [1].',
        'This is the label:\n\n```json\n{"of": [1.0], "label": "spam"}\n```\nI hope it helps.',
        '<think>Or {"label": "ham", "why": "it is longer"}?</think>The answer is {"label": "spam", "of": [1]}.',
    ]
    options = {"extra_body": {"unprm": {"budget": 4, **MAJORITY}}}
    with upstream(*texts) as reasoner, gateway(reasoner) as running:
        report = ask(running, response_format={"type": "json_object"}, **options).unprm
        unasked = ask(running, **options).unprm
    assert (report["answer"], report["share"], report["compared_as"]) == ('{"label":"spam","of":[1]}', 0.75, "json")
    assert unasked.get("compared_as") != "json"


def test_the_answer_that_json_states_decides() -> None:
    texts = ['{"reasoning": "r0", "answer": 4}', '{"reasoning": "r1", "answer": 5}', '{"reasoning": "r2", "answer": 5}']
    with upstream(*texts) as reasoner, gateway(reasoner) as running:
        asked = {"response_format": {"type": "json_object"}, "extra_body": {"unprm": {"budget": 3, **MAJORITY}}}
        report = ask(running, **asked).unprm
    assert (report["answer"], report["share"]) == ("5", 2 / 3)
    assert "compared_as" not in report


def test_weak_readings_count_with_a_witness() -> None:
    texts = ["He drives 3 hours.\nTotal: 140", "3 * 50 = 150", "Therefore he travels 150 miles"]
    with upstream(*texts) as reasoner, gateway(reasoner) as running:
        answer, report = elected(running, budget=3, **MAJORITY)
        voted = running.post("/vote/majority", {"solutions": texts}).json()
    assert answer.choices[0].message.content == texts[1]
    for found in (report, voted):
        assert (found["answer"], found["read_from"], "compared_as" in found) == ("150", "weak", False)
