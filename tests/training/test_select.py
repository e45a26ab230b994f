"""Selection by hand-worked cases, and where steps end in tokens."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from training import journal
from training.construct import app
from training.select import Judged, Selector, choose, least_similar, sentence_embedding, step_ends, tf_idf
from training.settings import SelectSettings
from unprm.equivalence import Equivalence


def _judged(index, correct, uncertainty, text=""):
    return Judged(index, text or f"text {index}", (), (), ("a",), (1,), "1", correct, uncertainty)


def test_the_most_uncertain_of_each_kind_are_chosen():
    judged = [_judged(0, True, 1.0), _judged(1, True, 3.0), _judged(2, False, 9.0), _judged(3, True, 2.0)]
    judged += [_judged(4, False, 8.0), _judged(5, False, 9.0)]
    chosen = choose(judged, SelectSettings(m=2, n=2), tf_idf, seed=0)
    assert [solution.index for solution in chosen] == [1, 3, 2, 5]


def test_fewer_than_asked_are_all_taken():
    judged = [_judged(0, True, 1.0), _judged(1, False, 3.0)]
    assert choose(judged, SelectSettings(), tf_idf, seed=0) == judged


def test_none_are_taken_if_none_are_asked_for():
    judged = [_judged(0, True, 1.0), _judged(1, False, 3.0)]
    for selection in ("uncertainty", "similarity", "random"):
        chosen = choose(judged, SelectSettings(selection=selection, m=0, n=1), tf_idf, seed=0)
        assert [solution.index for solution in chosen] == [1]


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


@pytest.mark.parametrize(
    ("text", "pieces", "ends"),
    [
        ("Step 1: a\nStep 2: b", ["Step 1: a", "\n", "Step 2: b"], [2, 3]),
        ("Step 1: a\n\nStep 2: b", ["Step 1:", " a\n\n", "Step 2: b", ""], [2, 3]),  # the last is the end-of-text token
        # a token that reaches into the next step belongs to it
        ("Step 1: a\n\nStep 2: b", ["Step 1: a", "\n\nStep", " 2: b"], [1, 3]),
        ("Step 1: ş\nStep 2: b", ["Step 1: ş", "\nStep 2: b"], [1, 2]),
        ("one", ["o", "ne"], [2]),
    ],
)
def test_where_steps_end_in_tokens(text, pieces, ends):
    assert step_ends(text, range(len(pieces)), lambda ids: "".join(pieces[i] for i in ids)) == ends


def test_solutions_without_token_ids_can_be_selected():
    completion = {"text": "Step 1: 2.\n\\boxed{2}", "ids": [], "logprobs": [-0.5, -0.1], "finished": True}
    record = {"id": "q", "model": "gpt", "problem": "1 + 1?", "answer": "2", "prompt": [], "completions": [completion]}
    with Equivalence() as equivalence:
        (chosen,) = Selector(equivalence, lambda ids: "", SelectSettings()).select(record)
    assert chosen["correct"]
    assert chosen["ends"] == ()
    assert chosen["mean_step_uncertainty"]["entropy"] is None


def test_solutions_are_read_as_the_settings_say():
    text = "One.\n\nTwo.\nSo it is 2."
    completion = {"text": text, "ids": list(range(len(text))), "logprobs": [-0.1] * len(text), "finished": True}
    record = {"id": "q", "model": "gpt", "problem": "1 + 1?", "answer": "2", "prompt": [], "completions": [completion]}
    settings = SelectSettings(extraction="last_number", split="line")
    with Equivalence() as equivalence:
        (chosen,) = Selector(equivalence, lambda ids: text[: len(ids)], settings).select(record)
        unread = Selector(equivalence, lambda ids: text[: len(ids)], SelectSettings())
        assert list(unread.select(record)) == []
    assert (chosen["answer"], chosen["correct"], chosen["steps"]) == ("2", True, ("One.", "Two.", "So it is 2."))
    assert chosen["ends"] == (6, 11, len(text))
    assert unread.dropped == {"no answer": 1}


def test_the_command_keeps_how_solutions_are_read(tmp_path):
    samples, output = tmp_path / "samples.jsonl", tmp_path / "selected.jsonl"
    completion = {"text": "1 + 1\nis 2.", "ids": [], "logprobs": [-0.1], "finished": True}
    record = {"id": "q", "model": "gpt", "problem": "1 + 1?", "answer": "2", "prompt": [], "completions": [completion]}
    journal.write(samples, {"stage": "sample"}, [record])
    options = ["--output", str(output), "--extraction", "last_number", "--step-split", "paragraph"]
    told = CliRunner().invoke(app, ["select", str(samples), *options])
    assert told.exit_code == 0, told.output
    assert [chosen["steps"] for chosen in journal.read(output)] == [["1 + 1\nis 2."]]
    config = json.loads(journal.config_path(output).read_text("utf-8"))
    assert (config["extraction"], config["split"]) == ("last_number", "paragraph")


def test_a_text_is_selected_once():
    def said(answer):
        text = f"Step 1: {answer}.\n\\boxed{{{answer}}}"
        return {"text": text, "ids": [], "logprobs": [-0.5, -0.1], "finished": True}

    completions = [said(3), said(2), said(3), said(4)]
    record = {"id": "q", "model": "gpt", "problem": "1 + 1?", "answer": "2", "prompt": [], "completions": completions}
    with Equivalence() as equivalence:
        selector = Selector(equivalence, lambda ids: "", SelectSettings())
        assert [chosen["index"] for chosen in selector.select(record)] == [1, 0, 3]
    assert selector.dropped == {"same text as another": 1}


def test_similarity_by_a_sentence_embedding_model(tmp_path):
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
    from transformers import BertConfig, BertModel, BertTokenizerFast

    place = tmp_path / "encoder"
    (tmp_path / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdef"]))
    torch.manual_seed(0)
    shape = BertConfig(vocab_size=11, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16)
    BertModel(shape).save_pretrained(place)
    BertTokenizerFast(vocab_file=str(tmp_path / "vocab.txt")).save_pretrained(place)
    words = Transformer(str(place))
    SentenceTransformer(modules=[words, Pooling(words.get_embedding_dimension())]).save(str(tmp_path / "model"))
    embed = sentence_embedding(str(tmp_path / "model"))
    vectors = embed(["a b", "a b", "c d e"])
    assert vectors.shape == (3, 16)
    assert least_similar(vectors, 2) == [0, 2]
