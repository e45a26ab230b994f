"""Verdicts are read from a model's own logits, whatever it makes of its output layer's, or not at all."""

from typing import Any

import pytest
import torch
from transformers import PreTrainedModel

from tests.support import columns
from tests.unprm.engines.torch.kinds import KINDS, write
from unprm.checkpoints.files import load_base, load_tokenizer
from unprm.engines.torch.heads import VerdictHead, changed_logits, check_unscaled, margin_of
from unprm.engines.vllm.model import prepare
from unprm.errors import ModelInvalid
from unprm.formats.family import Verdicts
from unprm.formats.unprm import PrmConfig
from unprm.models.load import load_engine
from unprm.models.options import ModelSpec
from unprm.models.source import ModelSource

MARKS = {"step_tag": "ş", "positive": "+", "negative": "-"}
PROBLEM, STEPS = "Problem: what is 12 + 34?", ["Step 1: 12 + 34 = 46.", "The answer is \\boxed{46}."]


def own_scores(network: PreTrainedModel, encoded: Any, verdicts: Verdicts) -> list[float]:
    with torch.no_grad():
        logits = network(torch.tensor([encoded.ids])).logits[0, list(encoded.positions)].float()
    return (logits[:, verdicts.positive] - logits[:, verdicts.negative]).sigmoid().tolist()


@pytest.mark.parametrize("kind", KINDS)
def test_verdicts_are_those_of_the_model_s_own_logits(kind, tmp_path):
    place = write(kind, tmp_path / kind)
    engine = load_engine(str(place), device="cpu", **MARKS)
    encoded = engine.format.encode(PROBLEM, STEPS)
    expected = own_scores(load_base(place, torch.float32), encoded, engine.format.readout)
    assert columns(engine.score([encoded])).values[0] == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kind", KINDS)
def test_the_factor_and_the_bias_are_exact_in_every_type(kind, dtype, tmp_path):
    network = load_base(write(kind, tmp_path / kind), dtype)
    output = network.get_output_embeddings()
    factor, bias = margin_of(network, Verdicts(3, 4))
    scale = KINDS[kind].get("logit_scale", KINDS[kind].get("logits_scaling", 1.0))
    assert factor == pytest.approx(1 / scale if kind == "granite" else scale, rel=1e-5)
    assert bias == pytest.approx(
        0.0 if output.bias is None else output.bias[3].item() - output.bias[4].item(), abs=1e-4
    )
    assert network.get_output_embeddings() is output
    assert not network.get_decoder()._forward_hooks


def test_capped_logits_are_refused(tmp_path):
    place = write("gemma2", tmp_path / "gemma2")
    with pytest.raises(ModelInvalid, match=r"gemma2 \(gemma2\) caps its logits, or is otherwise not linear"):
        load_engine(str(place), device="cpu", **MARKS)
    uncapped = load_base(write("gemma2", tmp_path / "uncapped", final_logit_softcapping=None), torch.float32)
    assert margin_of(uncapped, Verdicts(3, 4)) == pytest.approx((1.0, 0.0))


def test_what_changes_logits_unknown_to_us_is_found(base):
    class Squared(type(load_base(base, torch.float32))):  # type: ignore[misc]
        def forward(self, *arguments: Any, **options: Any) -> Any:
            made = super().forward(*arguments, **options)
            made.logits = made.logits.square()
            return made

    with pytest.raises(ModelInvalid, match="caps its logits"):
        VerdictHead.from_network(Squared.from_pretrained(base), Verdicts(3, 4))


def test_what_we_trained_is_read_as_it_was_trained(tmp_path):
    """By the output layer's rows alone."""
    place = write("granite", tmp_path / "granite")
    PrmConfig.for_base(load_tokenizer(place), "m", ".").write(place)
    engine = load_engine(str(place), device="cpu")
    encoded = engine.format.encode(PROBLEM, STEPS)
    network = load_base(place, torch.float32)
    network.config.logits_scaling = 1.0
    expected = own_scores(network, encoded, engine.format.readout)
    assert columns(engine.score([encoded])).values[0] == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize(
    ("kind", "reason"),
    [("cohere", r"are 0\.0625 times those of its output layer"), ("granite", r"are 0\.25 times"),
     ("gemma2", "caps its logits, or is otherwise not linear")],
)  # fmt: skip
def test_likelihood_ratios_of_other_logits_are_refused(kind, reason, tmp_path):
    network = load_base(write(kind, tmp_path / "base"), torch.float32)
    with pytest.raises(ModelInvalid, match=reason):
        check_unscaled(network, Verdicts(3, 4))


@pytest.mark.parametrize(("kind", "sigma"), [("qwen2", None), ("granite", 4.0)])
def test_vllm_divides_as_the_model_does(kind, sigma, tmp_path):
    place = write(kind, tmp_path / kind)
    source = ModelSource.find(ModelSpec(model=str(place), **MARKS))
    assert prepare(source.files, source.readout, source.tokenizer, torch.float32).logit_sigma == sigma


@pytest.mark.parametrize(("kind", "name"), [("cohere", "logit_scale"), ("phi", "a bias"), ("gptj", "a bias"),
                                            ("hyperclovax", "logits_scaling")])  # fmt: skip
def test_vllm_is_not_asked_for_logits_that_it_does_not_make(kind, name, tmp_path):
    place = write(kind, tmp_path / kind)
    source = ModelSource.find(ModelSpec(model=str(place), **MARKS))
    with pytest.raises(ModelInvalid, match=f"logits have {name} beside its output layer.*use --engine torch"):
        prepare(source.files, source.readout, source.tokenizer, torch.float32)


def test_settings_of_one_or_none_change_nothing():
    assert changed_logits({"logits_scaling": 1.0, "logit_scale": 1, "final_logit_softcapping": None}) is None
    assert changed_logits({"logit_scale": 0.0625}) == "logit_scale"
