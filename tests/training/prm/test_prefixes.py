"""Training on prefixes that solutions share: each is computed once, and nothing else changes."""

import itertools
import random

import pytest
import torch
from rich.progress import Progress
from transformers import MistralConfig, MistralForCausalLM

from tests.support import TEST_DATA
from tests.tiny import write_base
from training.prm.collate import batches, micro_batches
from training.prm.prefixes import grow, sees
from training.prm.train import Trainer
from training.prm.train_settings import LOSS_DEFAULTS, TrainSettings
from unprm.checkpoints.files import load_tokenizer
from unprm.errors import ModelInvalid

PRM800K = TEST_DATA / "layouts" / "prm800k.jsonl"


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    return write_base(tmp_path_factory.mktemp("tiny") / "base", window=4096)


def _settings(base, output, **changes):
    values = {"data": (PRM800K,), "batch_size": 8, "lora_dropout": 0.0, "share_prefixes": True}
    return TrainSettings(base=str(base), output=output, **(values | changes))


def test_a_forest_by_hand():
    forest = grow([(1, 2), (1, 2, 3, 4), (1, 2, 5), (7,)])
    assert forest.ids == [1, 2, 3, 4, 5, 7]
    assert forest.depths == [0, 1, 2, 3, 2, 0]
    assert forest.ends == [5, 5, 4, 4, 5, 6]
    assert forest.paths == [[0, 1], [0, 1, 2, 3], [0, 1, 4], [5]]


def test_a_token_sees_what_its_sequences_have_before_it():
    rng = random.Random(4)
    for _ in range(30):
        sequences = sorted(tuple(rng.choices(range(3), k=rng.randint(1, 9))) for _ in range(rng.randint(1, 20)))
        forest = grow(sequences)
        assert len(forest.ids) == len({s[: k + 1] for s in sequences for k in range(len(s))})
        seen = sees(torch.tensor(forest.ends))
        for sequence, path in zip(sequences, forest.paths, strict=True):
            assert tuple(forest.ids[index] for index in path) == sequence
            for depth, index in enumerate(path):
                assert forest.depths[index] == depth
                assert seen[index].nonzero().flatten().tolist() == path[: depth + 1]


@pytest.mark.parametrize("loss", ["bce", "rank"])
def test_losses_and_gradients_are_those_of_solutions_alone(base, tmp_path, loss):
    def gradient(**changes):
        trainer = Trainer(_settings(base, tmp_path, loss=loss, **LOSS_DEFAULTS.get(loss, {}), **changes))
        batch = trainer.examples[:12]  # of two problems
        total = sum(trainer.loss.count(example.labels) for example in batch)
        computed, lost = 0, 0.0
        for micro in trainer._micro_batches(batch):
            labels = micro.labels
            part = trainer.loss(trainer.network(micro), labels, micro.solutions, total)
            part.backward()
            computed, lost = computed + micro.ids.numel(), lost + part.item()
        ids = [example.encoded.ids for example in batch]
        distinct = {sequence[: end + 1] for sequence in ids for end in range(len(sequence))}
        gradients = [p.grad.flatten() for p in trainer._trained().values()]
        return torch.cat(gradients), lost, computed, len(distinct), sum(map(len, ids))

    alone, lost, computed, distinct, tokens = gradient(share_prefixes=False, batch_tokens=1)
    assert computed == tokens
    for budget, most in (400, tokens - 1), (100_000, distinct):
        shared, again, computed, *_ = gradient(batch_tokens=budget)
        assert torch.allclose(shared, alone, atol=1e-5)
        assert again == pytest.approx(lost, abs=1e-5)
        assert distinct <= computed <= most


def test_a_pass_keeps_its_budget_and_all_labels(base, tmp_path):
    trainer = Trainer(_settings(base, tmp_path))
    longest = max(len(example.encoded.ids) for example in trainer.examples)
    made = list(micro_batches(trainer.examples, longest + 50, sharing=True))
    assert len(made) > 1
    assert all(micro.ids.numel() <= longest + 50 for micro in made)
    labels = sorted(label for example in trainer.examples for label in example.labels)
    assert sorted(label for micro in made for label in micro.labels.tolist()) == labels


def test_a_problem_is_trained_at_a_time():
    problems = [f"problem {number % 7}" for number in range(40)]
    order = [index for batch in batches(problems, 8, 0, seed=1, together=True) for index in batch]
    assert sorted(order) == list(range(40))
    changes = sum(problems[a] != problems[b] for a, b in itertools.pairwise(order))
    assert changes == 6
    again = [index for batch in batches(problems, 8, 1, seed=1, together=True) for index in batch]
    assert order != again


def test_a_run_ends_and_validates(base, tmp_path):
    trainer = Trainer(_settings(base, tmp_path / "prm", validation=(PRM800K,), epochs=1))
    assert trainer.train(Progress(disable=True)).steps == -(-len(trainer.examples) // 8)
    assert trainer.validations


def test_models_that_see_a_window_are_refused(base, tmp_path):
    tokenizer = load_tokenizer(base)
    shape = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = MistralConfig(
        vocab_size=tokenizer.get_vocab_size(), num_key_value_heads=1, sliding_window=20, max_position_embeddings=4096,
        **shape,
    )  # fmt: skip
    narrow = tmp_path / "narrow"
    MistralForCausalLM(config).save_pretrained(narrow)
    tokenizer.save(str(narrow / "tokenizer.json"))
    with pytest.raises(ModelInvalid, match="it sees 20 tokens back"):
        Trainer(_settings(narrow, tmp_path / "prm"))
