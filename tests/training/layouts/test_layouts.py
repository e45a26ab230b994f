"""Every layout is read with the labels it means, trained on, and converted; bad rows are all named."""

import gzip
import json
from pathlib import Path

import pytest
from rich.progress import Progress
from typer.testing import CliRunner

from tests.support import TEST_DATA
from tests.tiny import write_base
from training.__main__ import app
from training.layouts.files import LAYOUTS, SHOWN, WRITERS, convert, read_labelled
from training.prm.train import Trainer
from training.prm.train_settings import TrainSettings
from training.schema import LabelledSolution
from unprm.errors import RecordInvalid, RecordsInvalid

SLICES = TEST_DATA / "layouts"
T, F = True, False
MADE = {
    "native": [
        {"problem": "p", "answer": 3, "steps": ["a", "b", "c"], "labels": [1, 0.25, None]},
        {"problem": "q", "steps": ["a", "b"], "labels": [1.0, False]},
    ],
    "trl": [{"prompt": "Larger: 9.8 or 9.11?", "completions": ["Compare.", "9.11."], "labels": [True, False]}],
    "openrlhf": [{"input": "What is 1 + 2? Step 1: 1 + 2 = 3. ки\nStep 2: The answer is 4. ки", "value": ["+", "-"]}],
    "er-prm": [{"text": "What is 1 + 2? Step 1: 1 + 2 = 3. ки\nStep 2: The answer is 4. ки", "value": [0.75, 0]}],
    "rlhflow": [
        {
            "conversations": [
                {"role": "user", "content": "What is 1 + 2? Step 1: 1 + 2 = 3."},
                {"role": "assistant", "content": "+"},
                {"role": "user", "content": "Step 2: The answer is 4."},
                {"role": "assistant", "content": "-"},
            ]
        },
        {
            "conversations": [
                {"role": "user", "content": "What is 1 + 2? We add."},
                {"role": "assistant", "content": "-"},
                {"role": "user", "content": "It is 3."},
                {"role": "assistant", "content": "+"},
            ]
        },
    ],
    "step-dpo": [
        {
            "dataset": "made",
            "prompt": "What is 1 + 2 + 3?",
            "initial_reason_steps": "Let's think step by step.\nStep 1: 1 + 2 = 3.\nStep 2:",
            "chosen": " 3 + 3 = 6.",
            "rejected": " 3 + 3 = 5.",
            "full_chosen": " 3 + 3 = 6.\nStep 3: The answer is 6.",
            "full_rejected": " 3 + 3 = 5.\nStep 3: The answer is 5.",
            "answer": "6",
        },
        {
            "prompt": "What is 1 + 2?",
            "initial_reason_steps": "Let's think step by step. \nStep 1:",
            "chosen": "3.",
            "rejected": "4.",
        },
    ],
}
"""Rows after TRL's description of its dataset formats, RLHFlow's `math-rm/README.md`, and Step-DPO's pipeline."""
LABELS = {
    "native": [[T, 0.25, None], [T, F]],
    "unprm": [[F, T, T], [F, T, T]],
    "trl": [[T, F]],
    "prm800k": [
        [T, T, T, T, T, T],
        *[[None, F]] * 5,
        [*[None] * 5, T],
        *[[*[None] * 5, T]] * 3,
        [T] * 6,
        [*[None] * 6, F],
        *[[*[None] * 6, T]] * 3,
        [T] * 8,
        *[[*[None] * 7, F]] * 6,
    ],
    "math-shepherd": [[T, T, T, T, F], [T, F, F, F, F], [F, F]],
    "openrlhf": [[T, F]],
    "er-prm": [[0.75, F]],
    "rlhflow": [[T, F], [T]],
    "processbench": [[T] * 3, [T, F, None]],
    "prmbench": [[T] * 3, [F, T, T], [T] * 3, [T, F, T]],
    "step-dpo": [[T, T], [None, F], [T], [F]],
}


def _slice(layout, directory):
    """A file with rows of a layout: the real ones that are here, else those made above."""
    if layout in MADE:
        path = directory / f"{layout}.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in MADE[layout]), "utf-8")
        return path
    if layout == "processbench":
        path = directory / "processbench.jsonl"
        rows = (TEST_DATA / "processbench" / "gsm8k.jsonl").read_text("utf-8").splitlines(keepends=True)
        three = [row for row in rows if len(json.loads(row)["steps"]) == 3]
        path.write_text(
            next(row for row in three if json.loads(row)["label"] == -1)
            + next(row for row in three if json.loads(row)["label"] == 1),
            "utf-8",
        )
        return path
    return SLICES / f"{layout}.jsonl"


def _write(path, *rows):
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows), "utf-8")
    return path


@pytest.fixture(scope="module")
def wide(tmp_path_factory):
    """A base whose window holds real solutions."""
    return write_base(tmp_path_factory.mktemp("wide") / "base", window=8192)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_layout_is_recognised_and_has_the_labels_it_means(tmp_path, layout):
    path = _slice(layout, tmp_path)
    found = list(read_labelled([path]))
    assert [list(solution.labels) for solution in found] == LABELS[layout]
    assert found == list(read_labelled([path], layout))
    assert all(text == text.strip() for solution in found for text in (solution.problem, *solution.steps))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_layout_is_trained_on(wide, tmp_path, layout):
    path = _slice(layout, tmp_path)
    settings = TrainSettings(
        str(wide), (path,), tmp_path / "prm", layout=layout, epochs=2, batch_size=64, validation=(path,)
    )
    trainer = Trainer(settings)
    assert [len(example.labels) for example in trainer.examples] == [
        sum(label is not None for label in labels) for labels in LABELS[layout]
    ]
    summary = trainer.train(Progress(disable=True))
    assert (summary.steps, summary.examples, summary.dropped_too_long) == (2, len(LABELS[layout]), 0)
    assert 0 < summary.loss < 20


def test_texts_are_split_where_the_layouts_say(tmp_path):
    one, *_ = read_labelled([SLICES / "math-shepherd.jsonl"])
    assert one.problem.endswith("in a year?")
    assert one.steps[0].startswith("Step 1: Janet spends 3 hours + 5 hours")
    assert one.steps[-1].endswith("The answer is: 13520")

    whole, wrong, *_ = read_labelled([SLICES / "prm800k.jsonl"])
    assert whole.problem.startswith("Three pencils")
    assert whole.gold_answer == "29"
    assert whole.steps[1] == "We have $3p+e=1.24$ and $5p+e=1.82$."  # written by a person
    assert wrong.steps == (
        whole.steps[0],
        "The first equation is 3p + e = 124, and the second equation is 5p + e = 182.",
    )

    split, joined = read_labelled([_slice("rlhflow", tmp_path)])
    assert (split.problem, split.steps) == ("What is 1 + 2?", ("Step 1: 1 + 2 = 3.", "Step 2: The answer is 4."))
    assert (joined.problem, joined.steps) == ("What is 1 + 2? We add.", ("It is 3.",))

    chosen, rejected, first, _ = read_labelled([_slice("step-dpo", tmp_path)])
    assert chosen.steps == ("Step 1: 1 + 2 = 3.", "Step 2: 3 + 3 = 6.")
    assert rejected.steps == ("Step 1: 1 + 2 = 3.", "Step 2: 3 + 3 = 5.")
    assert first.steps == ("Step 1: 3.",)

    rest = {"input": "Do Step 1: p Step 1: a ки\nStep 2: b", "label": "Do Step 1: p Step 1: a +\nStep 2: b"}
    (unfinished,) = read_labelled([_write(tmp_path / "rest.jsonl", rest)])
    assert unfinished == LabelledSolution("Do Step 1: p", ("Step 1: a", "Step 2: b"), (True, None))


BAD = [
    ("native", {"problem": "p", "steps": ["a"], "labels": [1.5]}, "labels.0: expected true, false, null, or a number"),
    ("native", {"problem": "p", "steps": ["a"], "labels": ["+"]}, "labels.0: expected true"),
    ("native", {"problem": "p", "steps": ["a"], "labels": [True, False]}, "2 labels for 1 steps"),
    ("native", {"problem": "p", "steps": ["a", "b"], "labels": [None, None]}, "no step has a label"),
    ("trl", {"prompt": "", "completions": ["a"], "labels": [True]}, "prompt: String should have at least 1 character"),
    ("unprm", {"prompt": "p", "completions": ["a"], "label": True}, "label: Input should be a valid list"),
    (
        "prm800k",
        {"question": {"problem": "p"}, "label": {"steps": [{"completions": [], "chosen_completion": 0}]}},
        "label.steps.0: chosen_completion 0, but 0 completions",
    ),
    (
        "prm800k",
        {"question": {"problem": "p"}, "label": {"steps": [{"completions": [{"text": "a", "rating": 2}]}]}},
        "label.steps.0.completions.0.rating: Input should be -1, 0 or 1",
    ),
    ("math-shepherd", {"input": "p Step 1: a ки", "label": "p Step 1: a ки"}, "no step has a label"),
    (
        "math-shepherd",
        {"input": "p Step 1: a ки", "label": "p Step 1: a + b"},
        "label: expected the text of input after",
    ),
    ("math-shepherd", {"input": "p a ки", "label": "p a +"}, "input: expected a problem, then `Step 1:`"),
    (
        "rlhflow",
        {"conversations": [{"role": "user", "content": "p Step 1: a"}, {"role": "user", "content": "+"}]},
        "conversations: expected a user and an assistant by turns",
    ),
    (
        "rlhflow",
        {"conversations": [{"role": "user", "content": "p Step 1: a"}, {"role": "assistant", "content": "secret"}]},
        r"conversations: expected \+ or - from the assistant",
    ),
    ("processbench", {"id": "x", "problem": "p", "steps": ["a"], "label": 1}, "label 1, but the solution has 1 steps"),
    (
        "step-dpo",
        {"prompt": "p", "initial_reason_steps": "", "chosen": "a", "rejected": " "},
        "rejected: must not be blank",
    ),
]


@pytest.mark.parametrize(("layout", "row", "complaint"), BAD)
def test_a_bad_row_is_named_by_line_and_field_without_its_text(tmp_path, layout, row, complaint):
    path = _write(tmp_path / "bad.jsonl", row)
    for stated in (None, layout):
        with pytest.raises(RecordInvalid, match=rf"bad\.jsonl, line 1: .*{complaint}") as caught:
            list(read_labelled([path], stated))
        assert "secret" not in str(caught.value)


def test_an_error_step_beyond_the_solution_is_refused():
    with pytest.raises(RecordInvalid, match=r"line 1: .*error_steps: 5, but 4 modified steps"):
        list(read_labelled([SLICES / "prmbench-out-of-range.jsonl"]))


def test_all_bad_records_of_all_files_are_counted_and_the_first_are_named(tmp_path):
    good = {"problem": "p", "steps": ["a"], "labels": [True]}
    one = _write(tmp_path / "one.jsonl", good, "no json", good, {"problem": "p", "other": "secret"})
    two = _write(tmp_path / "two.jsonl", *[{**good, "labels": ["secret"]}] * (SHOWN + 5))
    with pytest.raises(RecordsInvalid) as caught:
        list(read_labelled([one, two]))
    first, *named, last = str(caught.value).splitlines()
    assert (first, last) == (f"{SHOWN + 7} bad records:", "and 7 more")
    assert len(named) == SHOWN
    assert "one.jsonl, line 2: not JSON" in named[0]
    assert "one.jsonl, line 4: fields of no layout (native, unprm" in named[1]
    assert f"two.jsonl, line {SHOWN - 2}: labels.0: expected" in named[-1]
    assert "secret" not in str(caught.value)
    assert (caught.value.line, caught.value.count) == (2, SHOWN + 7)


def test_a_stated_layout_says_what_is_missing(tmp_path):
    path = _write(tmp_path / "a.jsonl", {"problem": "p", "steps": ["a"]})
    with pytest.raises(RecordInvalid, match="line 1: labels: Field required"):
        list(read_labelled([path], "native"))


def test_an_error_names_the_layout_that_a_misspelt_field_made_of_a_row(tmp_path):
    path = _write(tmp_path / "a.jsonl", {"problem": "p", "steps": ["a"], "label": [True]})
    with pytest.raises(RecordInvalid, match=r"line 1: id: .* \(read as processbench because of its fields lab"):
        list(read_labelled([path]))


def test_a_directory_is_all_its_files_in_order(tmp_path):
    def row(problem):
        return {"problem": problem, "steps": ["a"], "labels": [True]}

    place = tmp_path / "data"
    (place / "more").mkdir(parents=True)
    _write(place / "b.jsonl", row("2"), "", row("3"))
    (place / "a.json").write_text(json.dumps([row("0"), row("1")], indent=1), "utf-8")
    (place / "c.jsonl.gz").write_bytes(gzip.compress(json.dumps(row("4")).encode()))
    _write(place / "more" / "d.json", MADE["trl"][0])
    (place / "README.md").write_text("no data", "utf-8")
    for name in "ihgfe":
        _write(place / f"{name}.jsonl", row(name))
    assert "".join(solution.problem[0] for solution in read_labelled([place])) == "01234efghiL"
    (place / "a.json").write_text('[{},\n{"]', "utf-8")
    with pytest.raises(RecordInvalid, match=r"^\S+a\.json, line 1: not JSON"):
        list(read_labelled([place]))
    (tmp_path / "empty").mkdir()
    with pytest.raises(RecordInvalid, match=r"no file that ends with \.jsonl, \.jsonl\.gz, \.json"):
        list(read_labelled([tmp_path / "empty"]))


@pytest.mark.parametrize("name", ["missing.jsonl", "/missing", "../missing", "a/b/c"])
def test_what_is_no_file_and_no_name_of_the_hub_is_refused(name):
    with pytest.raises(RecordInvalid, match=rf"^{name}: there is no such file or directory"):
        list(read_labelled([Path(name)]))


@pytest.mark.parametrize("to", WRITERS)
@pytest.mark.parametrize("layout", ["unprm", "trl", "math-shepherd", "prmbench"])
def test_right_and_wrong_labels_survive_every_way(tmp_path, layout, to):
    source, output = _slice(layout, tmp_path), tmp_path / "converted.jsonl"
    assert convert(source, output, to) == len(LABELS[layout])
    before, after = list(read_labelled([source])), list(read_labelled([output], to))
    assert [solution.labels for solution in after] == [solution.labels for solution in before]
    assert after == before


def test_our_layout_holds_everything(tmp_path):
    for layout in LAYOUTS:
        source, output = _slice(layout, tmp_path), tmp_path / "out.jsonl"
        convert(source, output, "native")
        assert list(read_labelled([output])) == list(read_labelled([source]))


@pytest.mark.parametrize("to", [name for name in WRITERS if name != "native"])
def test_a_layout_that_cannot_hold_the_labels_refuses_and_says_how_many(tmp_path, to):
    rows = [
        {"problem": "p", "steps": ["a", "b"], "labels": labels} for labels in ([1, 0], [0.5, 1], [0.1, 0], [1, None])
    ]
    source, output = _write(tmp_path / "soft.jsonl", *rows), tmp_path / "out.jsonl"
    with pytest.raises(RecordInvalid, match="can't hold 3 of 4 solutions: 2 with soft labels, 1 with unknown labels"):
        convert(source, output, to)
    assert not output.exists()


def test_the_command_converts(tmp_path):
    source, output = _slice("rlhflow", tmp_path), tmp_path / "out.jsonl"
    result = CliRunner(env={"COLUMNS": "400"}).invoke(app, ["convert", str(source), str(output), "--to", "trl"])
    assert (result.exit_code, "2 solutions in" in result.output) == (0, True)
    assert json.loads(output.read_text("utf-8").splitlines()[0]) == {
        "prompt": "What is 1 + 2?",
        "completions": ["Step 1: 1 + 2 = 3.", "Step 2: The answer is 4."],
        "labels": [True, False],
    }
    result = CliRunner(env={"COLUMNS": "400"}).invoke(app, ["convert", str(source), "out.gz", "--to", "trl"])
    assert (result.exit_code, "ends with .jsonl" in result.output) == (2, True)


def test_labels_of_0_and_1_are_wrong_and_right(tmp_path):
    path = _write(tmp_path / "a.jsonl", {"problem": "p", "steps": list("abcd"), "labels": [0, 1, 0.0, 1.0]})
    assert list(read_labelled([path])) == [LabelledSolution("p", tuple("abcd"), (False, True, False, True))]
    assert all(isinstance(label, bool) for solution in read_labelled([path]) for label in solution.labels)


def test_a_word_that_contains_the_tag_is_no_tag(tmp_path):
    text = "В пачке 3 руки и 2 палочки. Сколько всего? Step 1: 3 руки. ки\nStep 2: 3 + 2 = 6 палочки. ки"
    label = text.replace(" ки", " +", 1).replace(" ки", " -", 1)
    (solution,) = read_labelled([_write(tmp_path / "a.jsonl", {"input": text, "label": label})])
    assert solution.steps == ("Step 1: 3 руки.", "Step 2: 3 + 2 = 6 палочки.")
    assert solution.labels == (True, False)


def test_each_tag_has_one_value(tmp_path):
    path = _write(tmp_path / "a.jsonl", {"input": "p Step 1: a ки", "value": ["+", "-"]})
    with pytest.raises(RecordInvalid, match="value: expected one for each of 1 ки, got 2"):
        list(read_labelled([path]))


@pytest.mark.parametrize("name", ["a.jsonl", "a.json", "a.jsonl.gz"])
def test_an_array_over_several_lines_is_read_under_any_name(tmp_path, name):
    path = tmp_path / name
    content = ("\ufeff" + json.dumps(MADE["native"], indent=1)).encode()
    path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    assert [list(solution.labels) for solution in read_labelled([path])] == LABELS["native"]


def test_a_byte_order_mark_is_no_part_of_the_first_line(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text("\ufeff" + json.dumps(MADE["native"][0]) + "\n", "utf-8")
    assert len(list(read_labelled([path]))) == 1
