"""The layout of the files, to the byte, and what is said of a record that does not fit."""

import gzip
import json

import pytest

from tests.training.solutions import annotated
from training import sources
from training.evaluate.judging import JudgedCandidates
from training.evaluate.scorers import SolutionScores
from training.schema import AnnotatedSolution, QuestionValue, SampledQuestion, SelectedSolution, adapter, to_line
from unprm.errors import RecordInvalid
from unprm.types import Completion

HEAD = '{"id": "a", "question": "q", "model": "m", "problem": "Why?", "answer": "1", "steps": ["So.", "Thus."], '
TAIL = '"tau": 0.5, "verified": 0, "samples": 0, "tokens": 0, "tried": []}\n'


@pytest.mark.parametrize(
    ("record", "line"),
    [
        (
            SampledQuestion("a", "ş?", "1", "m", (1, 2), (Completion("t", (3,), (-1e-05,), True),)),
            '{"id": "a", "problem": "ş?", "answer": "1", "model": "m", "prompt": [1, 2], "completions": '
            '[{"text": "t", "ids": [3], "logprobs": [-1e-05], "finished": true}]}\n',
        ),
        (
            SampledQuestion("a", "Why?", "1", "m", (1,), (Completion("t", (3,), (-0.5,), True, (0.25, 1.0)),)),
            '{"id": "a", "problem": "Why?", "answer": "1", "model": "m", "prompt": [1], "completions": '
            '[{"text": "t", "ids": [3], "logprobs": [-0.5], "finished": true, "step_scores": [0.25, 1.0]}]}\n',
        ),
        (annotated(labels=(True, False)), HEAD + '"correct": false, "labels": [true, false], ' + TAIL),
        (annotated(reason="why", rank=None), HEAD + '"correct": false, "reason": "why", "rank": null, ' + TAIL),
        (
            annotated(labels=(True, False), rank=0),
            HEAD + '"correct": false, "labels": [true, false], "rank": 0, ' + TAIL,
        ),
        (
            QuestionValue("q/m", 0.5, 16, 8, 100),
            '{"id": "q/m", "tau": 0.5, "samples": 16, "correct": 8, "tokens": 100, "count": null}\n',
        ),
        (SolutionScores("a", None), '{"id": "a", "scores": null}\n'),
        (
            JudgedCandidates("a", (0, None), (True, False), (0.5, None), ((0.5,), None)),
            '{"id": "a", "classes": [0, null], "correct": [true, false], "rewards": [0.5, null], '
            '"scores": [[0.5], null]}\n',
        ),
        (
            JudgedCandidates("a", (0,), (True,), (0.5,), confidences=(0.25,)),
            '{"id": "a", "classes": [0], "correct": [true], "rewards": [0.5], "scores": null, "confidences": [0.25]}\n',
        ),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_record_is_written_in_its_layout_and_read_again(tmp_path, record, line):
    assert to_line(record) == line
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(gzip.compress(f"\n{line}".encode()))
    assert list(sources.numbered(path, type(record))) == [(2, record)]


@pytest.mark.parametrize("kind", [SelectedSolution, AnnotatedSolution], ids=lambda kind: kind.__name__)
def test_a_file_from_before_answer_was_the_gold_one_everywhere_is_read(tmp_path, kind):
    """Then it was `gold`, and a candidate's own answer was `answer`."""
    old = {
        SelectedSolution: {
            "id": "a", "question": "q", "problem": "Why?", "gold": "1", "model": "m", "prompt": [], "index": 0,
            "text": "So 2.", "ids": [], "logprobs": [], "steps": ["So 2."], "ends": [], "answer": "2",
            "correct": False, "uncertainty": 1.5, "mean_step_uncertainty": {"entropy": None},
        },
        AnnotatedSolution: json.loads(HEAD.replace('"answer"', '"gold"') + '"correct": true, ' + TAIL),
    }[kind]  # fmt: skip
    path = tmp_path / "old.jsonl"
    path.write_text(json.dumps(old) + "\n", "utf-8")
    (record,) = sources.read(path, kind)
    assert record.gold_answer == "1"
    line = to_line(record)
    assert '"answer": "1"' in line
    assert ('"predicted": "2"' in line) is (kind is not AnnotatedSolution)
    path.write_text(line, "utf-8")
    assert list(sources.read(path, kind)) == [record]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"tau": "secret"}, "tau: Input should be a valid number"),
        ({"answer": 3}, "answer: Input should be a valid string"),
        (
            {"tried": [{"step": "secret"}]},
            "tried.0.step: Input should be a valid integer, unable to parse string as an integer",
        ),
        ({"labels": ["secret"]}, "labels.0: Input should be a valid boolean"),
    ],
)
def test_a_record_that_does_not_fit_is_named_by_line_and_field_without_its_text(tmp_path, change, reason):
    path = tmp_path / "a.jsonl"
    good = to_line(annotated(labels=(True, False)))
    path.write_text(good + json.dumps(json.loads(good) | change) + "\n", "utf-8")
    with pytest.raises(RecordInvalid, match=f"a.jsonl, line 2: {reason}") as caught:
        list(sources.read(path, AnnotatedSolution))
    assert "secret" not in str(caught.value)


def test_confidences_are_read_as_they_were_once_written_by_vote():
    old = {"id": "a", "classes": [0], "correct": [True], "rewards": [0.5], "confidences": {"cisc": [0.9], "other": [2]}}
    judged = adapter(JudgedCandidates).validate_python(old)
    assert judged.confidences == (0.9,)
    assert adapter(JudgedCandidates).validate_json(to_line(judged)) == judged
