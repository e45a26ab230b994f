"""What leaves the house: merged checkpoints."""

import shutil

import pytest
import torch

from training.prm.publish import merge_adapter, push
from unprm.errors import ModelInvalid, OutputMismatch
from unprm.models.load import load_engine

STEPS = ["Step 1: 12 + 34 = 46.", "The answer is \\boxed{46}."]


def test_a_merged_prm_scores_as_base_and_adapter_do_and_needs_neither(base, adapter, tmp_path):
    home = tmp_path / "home"
    shutil.copytree(base, home / "base")
    shutil.copytree(adapter, home / "adapter")
    engine = load_engine(str(adapter), device="cpu")
    expected = engine.score([engine.format.encode("12 + 34?", STEPS)]).scores[0]
    output = tmp_path / "merged"
    merge_adapter(str(home / "adapter"), None, output, torch.float32)
    shutil.rmtree(home)
    merged = load_engine(str(output), device="cpu")
    assert merged.score([merged.format.encode("12 + 34?", STEPS)]).scores[0] == pytest.approx(expected, abs=1e-6)
    assert (merged.description.name, merged.description.adapter) == ("tiny-prm", None)


def test_nothing_is_overwritten(adapter, tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(OutputMismatch, match="not empty"):
        merge_adapter(str(adapter), None, tmp_path, torch.float32)


def test_what_is_no_prm_is_not_pushed(tmp_path):
    with pytest.raises(ModelInvalid, match=r"prm_config\.json"):
        push(tmp_path, "somebody/something")
