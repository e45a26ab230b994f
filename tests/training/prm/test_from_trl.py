"""Our trainer's losses beside those of TRL's formula, on the same head; docs/from-trl.md."""

import random
from pathlib import Path

import pytest
import torch
from peft import LoraConfig, get_peft_model
from torch.nn import functional

from training import resumable
from training.prm.train import Trainer
from training.prm.train_settings import TrainSettings
from training.schema import LabelledSolution
from unprm.checkpoints.files import load_base

IGNORED = -100


def _solutions(count):
    rng = random.Random(3)
    for _ in range(count):
        labels = [rng.random() < 0.5 for _ in range(rng.randint(1, 4))]
        steps = [f"Step {k}: {rng.randint(1, 99)} is {'46' if label else '5'}." for k, label in enumerate(labels, 1)]
        yield LabelledSolution("Problem: what is 12?", tuple(steps), tuple(labels))


def _class_labels(example, last_step_only):
    """A class for each token as TRL has it: at the end of a step 1 (right) or 0, elsewhere ignored."""
    labels = [IGNORED] * len(example.encoded.ids)
    for place, label in [*zip(example.encoded.positions, example.labels, strict=True)][-1 if last_step_only else 0 :]:
        labels[place] = int(label)
    return labels


def _reference(trainer, batches, last_step_only):
    """Losses of steps with a padded batch and all logits: the mean cross-entropy of two classes at the steps' ends."""
    settings, config = trainer.settings, trainer.config
    lora = LoraConfig(
        r=settings.lora_rank,
        lora_alpha=settings.lora_alpha,
        target_modules=list(settings.lora_targets),
        task_type="CAUSAL_LM",
    )
    model = get_peft_model(load_base(Path(settings.base), torch.float32), lora)
    trained = {name: p for name, p in model.named_parameters() if p.requires_grad}
    for name, parameter in trained.items():
        parameter.data.copy_(trainer._trained()[f"model.{name}"])
    optimizer = torch.optim.AdamW(trained.values(), weight_decay=0.0)
    for number, batch in batches:
        longest = max(len(example.encoded.ids) for example in batch)
        padded = [longest - len(example.encoded.ids) for example in batch]
        ids = torch.tensor([[*e.encoded.ids, *[0] * pad] for e, pad in zip(batch, padded, strict=True)])
        mask = torch.tensor([[1] * (longest - pad) + [0] * pad for pad in padded])
        labels = [_class_labels(e, last_step_only) + [IGNORED] * pad for e, pad in zip(batch, padded, strict=True)]
        logits = model(input_ids=ids, attention_mask=mask).logits[..., [config.negative_id, config.positive_id]]
        loss = functional.cross_entropy(logits.flatten(0, 1), torch.tensor(labels).flatten(), ignore_index=IGNORED)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trained.values(), 1.0)
        optimizer.param_groups[0]["lr"] = settings.rate(number, trainer.total)
        optimizer.step()
        optimizer.zero_grad()
        yield loss.item()


@pytest.mark.parametrize(("loss", "last_step_only"), [("bce", False), ("orm", True)])
def test_the_losses_of_the_first_steps_are_those_of_trl_s_formula(base, tmp_path, loss, last_step_only):
    data = tmp_path / "steps.jsonl"
    resumable.write_lines(data, list(_solutions(48)))
    changes = {"loss": loss, "batch_size": 8, "batch_tokens": 100, "lora_dropout": 0.0, "learning_rate": 2e-2}
    trainer = Trainer(TrainSettings(base=str(base), data=(data,), output=tmp_path / "prm", **changes))
    batches = [*trainer._batches(0)][:8]
    expected = list(_reference(trainer, batches, last_step_only))
    losses = [trainer.step(number, batch) for number, batch in batches]
    assert losses == pytest.approx(expected, abs=1e-4)
    assert losses[-1] < 0.9 * losses[0]
