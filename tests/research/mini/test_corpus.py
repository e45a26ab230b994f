"""The corpus of the embedded model: what is learned from which token."""

import hashlib
import itertools
import random
from dataclasses import astuple, replace

import pytest
import torch
from transformers import Qwen2ForCausalLM

from research.mini import corpus, pretrain
from research.mini import tokenizer as mini_tokenizer
from research.mini.checker import first_error, labels
from unprm.formats.unprm import STEP_TAG
from unprm.mini.domain import parse


@pytest.fixture(scope="module")
def tokenizer():
    rng = random.Random(0)
    return mini_tokenizer.train(piece.text for _ in range(500) for piece in corpus.document(rng))


def _documents(kind, count=60):
    rng = random.Random(7)
    return [kind(rng) for _ in range(count)]


def test_digits_and_the_tag_are_tokens_of_their_own(tokenizer):
    assert tokenizer.tokenize("12 + 345") == ["1", "2", "Ġ+", "Ġ", "3", "4", "5"]
    assert len(tokenizer.encode(STEP_TAG)) == 1
    assert (
        tokenizer.decode(tokenizer.encode("Mia has 1205 marbles.\nStep 1: 7 × é"))
        == "Mia has 1205 marbles.\nStep 1: 7 × é"
    )


def test_verdicts_are_those_of_the_exact_checker(tokenizer):
    wrong = 0
    for pieces in _documents(corpus.reviewed):
        problem = parse(pieces[0].text.strip())
        steps = [piece.text for piece in pieces[1::2]]
        document = corpus.encode(tokenizer, pieces)
        verdicts = [right for tag, right in zip(document.tag, document.right, strict=True) if tag]
        assert verdicts == labels(problem, steps)
        wrong += not all(verdicts)
    assert wrong > 20


def test_only_the_right_part_of_a_reviewed_solution_is_learned(tokenizer):
    for pieces in _documents(corpus.reviewed):
        document = corpus.encode(tokenizer, pieces)
        steps = [piece.text for piece in pieces[1::2]]
        wrong = first_error(parse(pieces[0].text.strip()), steps)
        learned = tokenizer.decode([i for i, kept in zip(document.ids, document.learned, strict=True) if kept])
        right = "".join(steps[:wrong])
        assert learned.startswith(right)
        if wrong is None:
            assert learned == right
            assert not any(document.wrong)
        else:
            begun = learned.removeprefix(right)
            assert steps[wrong].startswith(begun)
            assert begun != steps[wrong]
            assert sum(document.wrong) == 1


def test_the_first_wrong_token_is_where_the_text_leaves_the_right_one(tokenizer):
    for pieces in _documents(corpus.reviewed_sums):
        document = corpus.encode(tokenizer, pieces)
        place = 0
        for piece in pieces:
            ids = tokenizer.encode(piece.text, add_special_tokens=False)
            marked = [k for k in range(len(ids)) if document.wrong[place + k]]
            if piece.instead_of is None:
                assert marked == []
            else:
                right = tokenizer.encode(piece.instead_of, add_special_tokens=False)
                assert ids[: marked[0]] == right[: marked[0]]
                assert ids[marked[0]] != right[marked[0]]
                assert document.judged[place + marked[0]] == corpus.WRONG_TOKEN
            place += len(ids)


def test_solutions_are_learned_with_their_slips_and_end(tokenizer):
    for pieces in _documents(corpus.solved):
        document = corpus.encode(tokenizer, pieces)
        learned = [token for token, kept in zip(document.ids, document.learned, strict=True) if kept]
        assert tokenizer.decode(learned[:-1]) == "".join(piece.text for piece in pieces[1:])
        assert learned[-1] == tokenizer.eos_token_id
        assert not any(document.tag)


@pytest.mark.parametrize(
    ("mixture", "digest"),
    [
        (corpus.RIGHT, "b5792ac8437bbcdd"),
        (corpus.CARELESS, "7bc4bbfcd9ae41b2"),
    ],
)
def test_a_seed_always_gives_the_same_documents(mixture, digest):
    """The embedded model was trained on these: solutions with the slips of careless authors, and sums."""
    rng, found = random.Random(4), hashlib.sha256()
    for _ in range(200):
        found.update(repr([astuple(piece) for piece in corpus.document(rng, mixture)]).encode())
    assert found.hexdigest()[:16] == digest


def test_batches_fit_their_length_and_come_again_from_the_same_seed(tokenizer):
    lengths = (96, 160, 256)

    def some(seed):
        return list(itertools.islice(corpus.batches(tokenizer, corpus.RIGHT, seed, 2048, lengths, 200), 20))

    first = some("a")
    for length, documents in first:
        assert length in lengths
        assert len(documents) * length <= 2048
        assert all(len(document.ids) <= length for document in documents)
    assert some("a") == first
    assert some("b") != first


def test_the_checker_s_judgement_is_part_of_the_loss(tokenizer):
    documents = [corpus.encode(tokenizer, pieces) for pieces in _documents(corpus.reviewed, 4)]
    judged = [
        replace(
            document,
            judged=[1.0] * len(document.ids),
            wrong=[not wrong for wrong in document.wrong],
            right=[not right for right in document.right],
        )
        for document in documents
    ]
    torch.manual_seed(0)
    model = Qwen2ForCausalLM(pretrain.architecture(tokenizer))
    assert _loss(model, tokenizer, documents) != _loss(model, tokenizer, judged)


def _loss(model, tokenizer, documents):
    batch = pretrain._collate(documents, 352, 352 * len(documents))
    loss_of = pretrain._Loss(model, tokenizer)
    torch.nn.init.constant_(loss_of.judge, 0.1)
    with torch.no_grad():
        return loss_of(model.model(input_ids=batch.ids, use_cache=False, output_hidden_states=True), batch).item()
