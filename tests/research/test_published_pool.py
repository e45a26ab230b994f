"""A pool of candidates is published, and read again."""

import pytest
import yaml
from datasets import load_dataset
from rich.console import Console
from typer.testing import CliRunner

from research import published_pool
from research.__main__ import app
from tests.support import TEST_DATA
from training.evaluate import best_of_n, judging, pool
from unprm.answers.equivalence import Equivalence
from unprm.errors import OutputMismatch, RecordInvalid

POOL = TEST_DATA / "votes" / "math500_pool_rlhflow.jsonl"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    output = tmp_path_factory.mktemp("runs") / "real"
    questions = pool.read_pool(POOL, "step_scores")[:4]
    equivalence = Equivalence()
    best_of_n.evaluate(questions, None, equivalence, output, Console(quiet=True))
    best_of_n.write_solutions(questions, output)
    return output


def test_others_read_it_with_its_card_and_so_do_we(run, tmp_path):
    output = tmp_path / "my-pool"
    arguments = ["publish-pool", str(run), "--output", str(output), "--licence", "apache-2.0"]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    questions, judged = pool.read_pool(POOL, "step_scores")[:4], {each.id: each for each in judging.kept(run)}
    rows = load_dataset(str(output), split="test", cache_dir=str(tmp_path / "cache"))
    assert [row["id"] for row in rows] == [question.id for question in questions]
    for row, question in zip(rows, questions, strict=True):
        assert (row["problem"], row["answer"]) == (question.problem, question.gold_answer)
        assert [tuple(each["step_scores"]) for each in row["candidates"]] == list(question.step_scores)
        assert [tuple(each["steps"]) for each in row["candidates"]] == list(question.steps)
        assert tuple(each["correct"] for each in row["candidates"]) == judged[question.id].correct
    card = (output / "README.md").read_text("utf-8")
    assert yaml.safe_load(card.split("---")[1])["license"] == "apache-2.0"
    assert "4 questions with" in card
    again = pool.read_pool(output / "data" / "test.parquet", "step_scores")
    assert [(each.problem, each.steps, each.step_scores) for each in again] == [
        (each.problem, each.steps, each.step_scores) for each in questions
    ]
    with pytest.raises(OutputMismatch, match="not empty"):
        published_pool.write(run, output, "mit")


def test_a_run_without_texts_is_refused(run, tmp_path):
    (tmp_path / "candidates.jsonl").write_text((run / "candidates.jsonl").read_text("utf-8"), "utf-8")
    with pytest.raises(RecordInvalid, match=r"no solutions.jsonl"):
        published_pool.write(tmp_path, tmp_path / "out", "mit")
    lines = (run / "solutions.jsonl").read_text("utf-8").splitlines(keepends=True)
    (tmp_path / "solutions.jsonl").write_text("".join(lines[1:]), "utf-8")
    with pytest.raises(RecordInvalid, match="other questions"):
        published_pool.write(tmp_path, tmp_path / "out", "mit")
    assert not (tmp_path / "out").exists()
