"""Questions whose answers are stated in their solutions."""

import json
from collections import Counter

import pytest

from training.data.sample import load_questions
from unprm.errors import RecordInvalid


def test_the_answer_is_looked_for_in_the_solution_as_the_settings_say(tmp_path):
    path = tmp_path / "questions.jsonl"
    path.write_text(json.dumps({"problem": "1 + 1?", "solution": "We add, and get 2."}) + "\n", "utf-8")
    with pytest.raises(RecordInvalid):
        load_questions(str(path))
    ((question,), _) = load_questions(str(path), extraction="last_number")
    assert question.gold_answer == "2"
    path.write_text(json.dumps({"problem": "1 + 1?", "solution": "1 + 1 = 2\n#### 2"}) + "\n", "utf-8")
    ((question,), _) = load_questions(str(path))
    assert question.gold_answer == "2"


def test_a_file_without_a_question_is_refused(tmp_path):
    path = tmp_path / "questions.jsonl"
    for text in ("", '{"problem": "1 + 1?", "answer": "None"}\n'):
        path.write_text(text, "utf-8")
        with pytest.raises(RecordInvalid, match="it has no question with an answer"):
            load_questions(str(path))


def _perturbed(path, counts, **fields):
    """A file with as many questions of each perturbation type, one type after the other."""
    rows = [
        {"question": f"{kind} {k}", "answer": "None" if kind == "critical thinking" else str(k)}
        | {"perturbation_type": kind}
        | fields
        for kind, count in counts.items()
        for k in range(count)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return str(path)


def _types(questions):
    return Counter(question.problem.rpartition(" ")[0] for question in questions)


def test_as_many_are_drawn_for_each_value_of_a_field(tmp_path):
    source = _perturbed(tmp_path / "plus.jsonl", {"digit expansion": 30, "adding operation": 9})
    drawn, _ = load_questions(source, limit=5, per="perturbation_type")
    assert _types(drawn) == {"digit expansion": 5, "adding operation": 5}
    whole, _ = load_questions(source)
    assert [question for question in whole if question in drawn] == drawn
    assert load_questions(source, limit=5, per="perturbation_type")[0] == drawn
    assert load_questions(source, limit=5, per="perturbation_type", seed=1)[0] != drawn
    alike, _ = load_questions(
        _perturbed(tmp_path / "alike.jsonl", {"a": 30, "b": 30}), limit=5, per="perturbation_type"
    )
    assert [question.gold_answer for question in alike[:5]] != [question.gold_answer for question in alike[5:]]
    more = _perturbed(tmp_path / "more.jsonl", {"reversing operation": 7, "digit expansion": 30})
    assert set(load_questions(more, limit=5, per="perturbation_type")[0]) & set(whole) == set(drawn[:5])


def test_questions_without_an_answer_are_left_out_and_counted_before_the_draw(tmp_path):
    source = _perturbed(tmp_path / "plus.jsonl", {"critical thinking": 4, "adding operation": 6})
    drawn, left_out = load_questions(source, limit=5, per="perturbation_type")
    assert (_types(drawn), left_out) == ({"adding operation": 5}, 4)
    drawn, left_out = load_questions(source, limit=4, per="perturbation_type", unanswerable=True)
    assert (_types(drawn), left_out) == ({"adding operation": 4, "critical thinking": 4}, 0)
    assert {question.gold_answer for question in drawn if "critical" in question.problem} == {"None"}


def test_a_draw_that_is_not_possible_is_refused(tmp_path):
    source = _perturbed(tmp_path / "plus.jsonl", {"digit expansion": 3, "adding operation": 2})
    with pytest.raises(RecordInvalid, match="of 2 values one has only 2 questions, 3 are"):
        load_questions(source, limit=3, per="perturbation_type")
    with pytest.raises(RecordInvalid, match="line 1: there is no 'kind'"):
        load_questions(source, limit=3, per="kind")
