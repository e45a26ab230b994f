"""Selection by hand-worked cases, and where steps end in tokens."""

import io

import numpy as np
import pytest
from rich.console import Console
from typer.testing import CliRunner

from tests.training import lines
from tests.training.solutions import selected
from training import resumable
from training.cli.data import app
from training.data.select import (
    Selector,
    choose,
    least_similar,
    mean_change,
    select,
    step_uncertainties,
    tf_idf,
    token_similarity,
    uncertain_and_diverse,
)
from training.schema import SampledQuestion
from training.stage_settings import SelectSettings
from unprm.answers.equivalence import Equivalence
from unprm.errors import RecordInvalid
from unprm.types import Completion


def _judged(index, correct, uncertainty, text=""):
    return selected(index=index, text=text or f"text {index}", correct=correct, uncertainty=uncertainty)


def _question(*solutions):
    return SampledQuestion("q", "1 + 1?", "2", "m", (), solutions)


def test_the_most_uncertain_of_each_kind_are_chosen():
    judged = [_judged(0, True, 1.0), _judged(1, True, 3.0), _judged(2, False, 9.0), _judged(3, True, 2.0)]
    judged += [_judged(4, False, 8.0), _judged(5, False, 9.0)]
    chosen = choose(judged, SelectSettings(m=2, n=2), seed=0)
    assert [solution.index for solution in chosen] == [1, 3, 2, 5]


def test_fewer_than_asked_are_all_taken():
    judged = [_judged(0, True, 1.0), _judged(1, False, 3.0)]
    assert choose(judged, SelectSettings(), seed=0) == judged


def test_none_are_taken_if_none_are_asked_for():
    judged = [_judged(0, True, 1.0), _judged(1, False, 3.0)]
    for selection in ("uncertainty", "similarity", "random"):
        chosen = choose(judged, SelectSettings(selection=selection, m=0, n=1), seed=0)
        assert [solution.index for solution in chosen] == [1]


@pytest.mark.parametrize(("right", "wrong"), [(0, 8), (1, 7), (2, 6), (5, 6)])
def test_wrong_ones_fill_the_places_of_missing_right_ones(right, wrong):
    judged = [_judged(index, index < right, float(index)) for index in range(right + 20)]
    chosen = choose(judged, SelectSettings(fill=True), seed=0)
    assert [solution.correct for solution in chosen] == [True] * min(right, 2) + [False] * wrong
    unfilled = choose(judged, SelectSettings(), seed=0)
    assert sum(not solution.correct for solution in unfilled) == 6


def test_the_mean_change_of_uncertainty_by_hand():
    assert mean_change([1.0, 3.0, 2.5, 2.5]) == pytest.approx((2 + 0.5 + 0) / 3)
    assert mean_change([4.0]) == 0


def test_token_similarity_by_hand():
    similar = token_similarity([(3, 4), (4, 3, 9), (0, 0)])  # the second is cut to two tokens
    assert similar == pytest.approx(np.array([[1, 24 / 25, 0], [24 / 25, 1, 0], [0, 0, 0]]))


def test_uncertainty_and_diversity_by_hand():
    uncertainties = [1.0, 5.0, 4.0, 3.0, 5.0]  # normalised: 0, 1, 0.75, 0.5, 1
    similar = np.ones((5, 5))
    similar[3, 1] = similar[1, 3] = 0.1
    # beside the second, at 0.2: the third has 0.6, the fourth 0.4 + 0.2 · 0.9 = 0.58, the fifth 0.8
    assert uncertain_and_diverse(uncertainties, similar, 3, 0.2) == [1, 4, 2]
    # at 0.5 the third has 0.375, the fourth 0.25 + 0.45 = 0.7, the fifth 0.5
    assert uncertain_and_diverse(uncertainties, similar, 3, 0.5) == [1, 3, 4]
    assert uncertain_and_diverse(uncertainties, similar, 0, 0.2) == []
    assert uncertain_and_diverse([2.0, 2.0], np.ones((2, 2)), 1, 0.2) == [0]


def test_the_least_similar_are_chosen_one_by_one():
    angles = np.radians([0, 10, 90, 50, 85])
    vectors = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    assert least_similar(vectors, 2) == [0, 2]
    # mean cosines to 0° and 90°: 10° 0.58, 50° 0.70, 85° 0.54
    assert least_similar(vectors, 3) == [0, 2, 4]
    assert least_similar(vectors, 1) == [0]


def test_equal_texts_are_similar_and_ties_go_to_the_lower_index():
    vectors = tf_idf(["a b c", "a b c", "d e f", "d e f"])
    assert least_similar(vectors, 2) == [0, 2]


def test_solutions_without_token_ids_can_be_selected():
    question = _question(Completion("Step 1: 2.\n\\boxed{2}", (), (-0.5, -0.1), finished=True))
    equivalence = Equivalence()
    (chosen,) = Selector(equivalence, lambda ids: "", SelectSettings()).select(question)
    assert chosen.correct
    assert chosen.ends == ()
    assert chosen.mean_step_uncertainty["entropy"] is None


def _sampled(*texts):
    """A sampled question; tokens are characters, and the last of each step is the least likely."""
    return _question(
        *(
            Completion(
                text,
                tuple(map(ord, text)),
                tuple(-3.0 if character in ".}" else -0.1 for character in text),
                finished=True,
            )
            for text in texts
        )
    )


def test_uncertainty_and_diversity_of_whole_solutions():
    long = "Step 1: One.\nStep 2: " + "and one " * 9 + "is \\boxed{2}"
    even, single = "Step 1: One.\nStep 2: So \\boxed{2}", "Step 1: \\boxed{2}"
    settings = SelectSettings(selection="uncertainty-diversity", measure="entropy_t5", m=1, min_steps=2)
    equivalence = Equivalence()
    selector = Selector(equivalence, lambda ids: "".join(map(chr, ids)), settings)
    (chosen,) = selector.select(_sampled(even, single, long))
    assert chosen.index == 2  # its uncertainty rises most from step to step
    assert chosen.uncertainty == pytest.approx(
        mean_change(step_uncertainties(chosen.logprobs, chosen.ends, "entropy_t5"))
    )
    assert selector.dropped == {"fewer than 2 steps": 1}


def test_samples_without_token_ids_can_t_be_compared_by_them(tmp_path):
    question = _question(Completion("Step 1: One.\nStep 2: So \\boxed{2}", (), (-0.1,), finished=True))
    resumable.write(tmp_path / "samples.jsonl", {}, [question])
    settings = SelectSettings(selection="uncertainty-diversity")
    equivalence = Equivalence()
    selector = Selector(equivalence, lambda ids: "", settings)
    with pytest.raises(RecordInvalid, match=r"line 1: .*token ids"):
        select(tmp_path / "samples.jsonl", tmp_path / "selected.jsonl", selector, Console(file=io.StringIO()))


def test_solutions_are_read_as_the_settings_say():
    text = "One.\n\nTwo.\nSo it is 2."
    question = _question(Completion(text, tuple(range(len(text))), (-0.1,) * len(text), finished=True))
    settings = SelectSettings(extraction="last_number", split="line")
    equivalence = Equivalence()
    (chosen,) = Selector(equivalence, lambda ids: text[: len(ids)], settings).select(question)
    unread = Selector(equivalence, lambda ids: text[: len(ids)], SelectSettings())
    assert list(unread.select(question)) == []
    assert (chosen.predicted, chosen.correct, chosen.steps) == ("2", True, ("One.", "Two.", "So it is 2."))
    assert chosen.ends == (6, 11, len(text))
    assert unread.dropped == {"no answer": 1}


def test_the_command_keeps_how_solutions_are_read(tmp_path):
    samples, output = tmp_path / "samples.jsonl", tmp_path / "selected.jsonl"
    completion = {"text": "1 + 1\nis 2.", "ids": [], "logprobs": [-0.1], "finished": True}
    record = {"id": "q", "model": "gpt", "problem": "1 + 1?", "answer": "2", "prompt": [], "completions": [completion]}
    lines.write(samples, {"stage": "sample"}, [record])
    options = ["--output", str(output), "--extraction", "last_number", "--step-split", "paragraph"]
    result = CliRunner().invoke(app, ["select", str(samples), *options])
    assert result.exit_code == 0, result.output
    assert [chosen["steps"] for chosen in lines.read(output)] == [["1 + 1\nis 2."]]
    config = resumable.config_of(output)
    assert (config["extraction"], config["split"]) == ("last_number", "paragraph")


def test_a_text_is_selected_once():
    def said(answer):
        text = f"Step 1: {answer}.\n\\boxed{{{answer}}}"
        return Completion(text, (), (-0.5, -0.1), finished=True)

    question = _question(said(3), said(2), said(3), said(4))
    equivalence = Equivalence()
    selector = Selector(equivalence, lambda ids: "", SelectSettings())
    assert [chosen.index for chosen in selector.select(question)] == [1, 0, 3]
    assert selector.dropped == {"same text as another": 1}
