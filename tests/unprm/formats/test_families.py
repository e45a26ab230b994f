"""Every published family on a tiny random checkpoint of its true architecture: the input to the token, the scores
against its authors' way of computing them, and what happens to hostile text and to models that don't fit."""

import json
import math
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from tokenizers.processors import TemplateProcessing
from transformers import PreTrainedTokenizerFast

from tests import checkpoints
from tests.checkpoints import OTHERS, PROBLEM, STEPS
from tests.checkpoints import PUBLISHED as FAMILIES
from tests.server.harness import serving
from tests.support import ROOT, columns
from tests.unprm.formats import references
from unprm.engines.torch.heads import EnsembleHead
from unprm.errors import InvalidRequest, ModelInvalid
from unprm.formats.registry import families, known_models
from unprm.formats.tagged import SEPARATORS
from unprm.models.load import load_engine
from unprm.steps import split
from unprm.types import Prompt

BETA = 0.05


@pytest.fixture(scope="module")
def places(tmp_path_factory) -> dict[str, Path]:
    """Directory of a checkpoint per family, and of a reference model for implicit rewards."""
    root = tmp_path_factory.mktemp("families")
    made = {name: checkpoints.write(name, root / name) for name in FAMILIES}
    return made | {"reference": checkpoints.write("eurus", root / "reference", seed=1)}


@pytest.fixture(scope="module")
def engines(places):
    return {name: load_engine(str(places[name]), device="cpu", **options(name, places)) for name in FAMILIES}


def options(name: str, places: dict[str, Path]) -> dict[str, Any]:
    """The options that a checkpoint needs beside its `config.json`."""
    if name == "eurus":
        return {"family": name, "reference": str(places["reference"]), "beta": BETA}
    return {} if families()[name].architectures else {"family": name}


def reference(name: str, places: dict[str, Path]) -> references.Score:
    if name == "eurus":
        return references.eurus(places[name], places["reference"], BETA)
    make = getattr(references, name.replace("-", "_"))
    return make(places[name])


@pytest.mark.parametrize("name", FAMILIES)
def test_scores_are_those_of_the_authors_way(name, places, engines):
    engine, expected = engines[name], reference(name, places)
    solutions = [(PROBLEM, STEPS), *OTHERS]
    encoded = [engine.format.encode(*solution) for solution in solutions]
    scores = columns(engine.score(encoded)).values
    for solution, item, values in zip(solutions, encoded, scores, strict=True):
        ids, reference_scores = expected(*solution)
        assert list(item.ids) == ids
        assert values == pytest.approx(reference_scores, abs=1e-5)
    every = [value for values in scores for value in values]
    assert max(every) - min(every) > 0.1  # scores that tell steps apart
    assert engine.description.family == name


@pytest.mark.parametrize("name", FAMILIES)
def test_a_rendered_prompt_is_scored_at_the_family_s_tags(name, engines):
    form = engines[name].format
    encoded = form.encode(PROBLEM, STEPS)
    if form.tag is None and name != "outcome":  # which is scored at the end
        with pytest.raises(InvalidRequest, match="send messages"):
            form.at_tags(encoded.ids)
        return
    read = form.at_tags(form.tokenize(Prompt(encoded.ids)))
    assert (read.ids, set(read.positions)) == (encoded.ids, set(encoded.positions))
    begin = "<s> " if name == "math-shepherd" else ""  # after it, decoding writes a space that was no part of the text
    ids = form.tokenize(Prompt(form.text(encoded).removeprefix(begin), begins=False))
    assert ids == encoded.ids[bool(begin) :]
    with pytest.raises(InvalidRequest, match="1 token ids"):
        form.tokenize(Prompt((*ids, 10**9)))


@pytest.mark.parametrize("name", FAMILIES)
def test_a_solution_s_text_is_split_at_the_family_s_separator(name, engines):
    form = engines[name].format
    if form.tag is None:
        return
    assert split("\n\n".join(STEPS), tags=[form.tag]) == STEPS
    steps = [f"Step {number}: {step}" for number, step in enumerate(STEPS, 1)]
    between = "\n" if name == "math-shepherd" else ""
    text = between.join(f"{step}{form.tag.text}" for step in steps)
    assert split(text, tags=[form.tag]) == steps
    assert len(split(text * 100, most=3, tags=[form.tag])) == 4


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("qwen-prm", checkpoints.CHATML.split("system\n")[1].split("<|im_end|>")[0]),
        ("fover", "Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024"),
        ("granite", "Knowledge Cutoff Date: April 2024.\nToday's Date: June 24, 2025.\nYou are Granite, developed by "
         "IBM. You are a helpful AI assistant."),
        ("outcome", ""),
        ("trl", ""),
    ],
)  # fmt: skip
def test_the_system_message_of_a_template_is_known(name, message, engines):
    assert engines[name].format.system == message


@pytest.mark.parametrize("name", ["qwen-prm", "actprm"])
def test_a_prompt_without_a_tag_gets_one_after_its_text(name, engines):
    form = engines[name].format
    encoded = form.encode(PROBLEM, STEPS[:1])
    chat = form.text(encoded).replace("<extra_0>", "")
    assert chat.endswith("<|im_end|>\n")
    read = form.at_tags(form.tokenize(Prompt(chat)))
    assert (read.ids, read.positions) == (encoded.ids_to_last_position, encoded.positions)
    with pytest.raises(InvalidRequest, match="no text"):
        form.at_tags(form.tokenize(Prompt("<|im_end|>\n")))


@pytest.fixture(scope="module")
def marks(places) -> set[str]:
    """What is more than text to any of the tokenizers."""
    tokenizers = (PreTrainedTokenizerFast.from_pretrained(places[name]) for name in FAMILIES)
    return {str(token) for tokenizer in tokenizers for token in tokenizer.added_tokens_decoder.values()}


@pytest.mark.parametrize("name", FAMILIES)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=60)
@given(st.text(max_size=20), st.lists(st.text(min_size=1, max_size=20).filter(str.strip), min_size=1, max_size=4))
def test_one_position_per_step_whatever_the_text(name, engines, marks, problem, steps):
    _reads(engines[name].format, marks, problem, steps)


@pytest.mark.parametrize("name", FAMILIES)
def test_one_position_per_step_in_a_text_of_special_tokens(name, engines, marks):
    special = " ".join([*sorted(marks), "[INST]", "ки", "ş", "▁ки", "+", " \n\n\n\n"])
    _reads(engines[name].format, marks, special, [special, "▁", f"{special} ", "x ▁ "])


def _reads(form, marks, problem, steps):
    encoded = form.encode(problem, steps)
    assert len(encoded.positions) == len(steps)
    if form.family == "outcome":
        assert len(set(encoded.positions)) == 1
    else:
        assert sorted(set(encoded.positions)) == list(encoded.positions)
    assert 0 <= encoded.response <= encoded.positions[0]
    # every token of the template is there as often as in an input of harmless text
    harmless = form.encode("x", ["y"] * len(steps))
    count = [sum(token in marks for token in form.tokens(item)) for item in (encoded, harmless)]
    assert count[0] == count[1]


def test_the_head_of_two_classes_is_recognized_by_its_configuration(places):
    assert load_engine(str(places["qwen-prm"])).description.family == "qwen-prm"
    assert load_engine(str(places["skywork"])).description.family == "skywork"
    assert load_engine(str(places["actprm"])).description.family == "actprm"
    assert load_engine(str(places["trl"])).description.family == "trl"


def test_what_separated_the_steps_of_trl_s_checkpoints_is_asked_for(places, tmp_path):
    place = shutil.copytree(places["trl"], tmp_path / "trl")
    config = json.loads((place / "config.json").read_text("utf-8"))
    assert config.pop("step_separator") == "\n"
    (place / "config.json").write_text(json.dumps(config), "utf-8")  # as TRL writes it
    with pytest.raises(ModelInvalid, match=r"does not tell its step_separator: give it by --separator"):
        load_engine(str(place))
    line, blank = (load_engine(str(place), separator=text) for text in (r"\n", r"\n\n"))
    assert line.description.digest == load_engine(str(place), separator="\n").description.digest
    assert line.description.digest != blank.description.digest  # scores of one aren't mistaken for the other's
    assert "{step 1}\\n\\n{step 2}" in blank.description.input_format
    encoded = blank.format.encode("1 + 1?", ["It is 2."])
    assert blank.format.text(encoded).endswith("It is 2.\n\n")
    with pytest.raises(ModelInvalid, match="--separator is for models of family trl, not skywork"):
        load_engine(str(places["skywork"]), separator="\n")


def test_published_checkpoints_of_trl_have_a_known_separator():
    known = {model.name for family, model in known_models() if family.name == "trl"}
    assert known == SEPARATORS.keys()
    assert set(SEPARATORS.values()) == {"\n\n"}


def test_published_models_are_named_once_with_their_facts():
    names = [model.name for _, model in known_models()]
    assert len(names) == len(set(names))
    assert all(model.parameters > 0.5 and model.licence for _, model in known_models())
    page = (ROOT / "docs" / "models.md").read_text("utf-8")
    assert all(name.removesuffix("-Qwen-2.5-7B") in page for name in names)
    assert all(f"`{name}`" in page for name in families())


def _changed(place: Path, tmp_path: Path) -> Path:
    return shutil.copytree(place, tmp_path / "changed")


def refused(place: Path, pattern: str, **options: Any) -> None:
    with pytest.raises(ModelInvalid, match=pattern) as caught:
        load_engine(str(place), device="cpu", **options)
    assert "\n" not in str(caught.value)


def test_a_model_that_no_family_claims_is_refused(places):
    refused(places["eurus"], r"Qwen2ForCausalLM\) has neither a prm_config.json nor a known name.*math-shepherd")


def test_a_family_that_is_none_is_refused(places):
    refused(places["eurus"], "'nobody' is not a family; expected one of [a-z0-9-]+, ", family="nobody")


def test_a_model_of_another_family_is_refused(places, adapter, base):
    refused(places["qwen-prm"], "is a model of family qwen-prm, not skywork: leave out --family", family="skywork")
    refused(places["eurus"], "no token '▁ки'|no token '<s>'", family="math-shepherd")
    refused(places["math-shepherd"], "has no chat template, which this family's input", family="rlhflow")
    refused(places["math-shepherd"], r"no token '<\|im_start\|>'", family="eurus")
    refused(places["rlhflow"], "no tensor v_head.summary.weight", family="skywork")
    refused(places["eurus"], "has no prm_config.json", family="unprm")
    refused(base, "no adapters", family="eurus", adapter=str(adapter))


def test_a_tag_that_is_not_in_the_vocabulary_is_refused(places, tmp_path):
    place = _changed(places["qwen-prm"], tmp_path)
    text = (place / "tokenizer.json").read_text("utf-8")
    (place / "tokenizer.json").write_text(text.replace("<extra_0>", "<other>"), "utf-8")
    refused(place, "no token '<extra_0>'")


def test_a_head_that_is_missing_or_of_another_shape_is_refused(places, tmp_path):
    place = _changed(places["qwen-prm"], tmp_path)
    tensors = load_file(place / "model.safetensors")
    save_file(
        {name: tensor for name, tensor in tensors.items() if name != "score.2.weight"},
        place / "model.safetensors",
        {"format": "pt"},
    )
    refused(place, "no tensor score.2.weight, the head of this family")
    tensors["score.2.weight"] = tensors["score.2.weight"][:, :7].clone()
    save_file(tensors, place / "model.safetensors", {"format": "pt"})
    refused(place, r"score.2 is \(2, 7\) with a bias of 2, expected rows of 64")


@pytest.mark.parametrize(
    ("name", "shape", "pattern"),
    [
        ("nn1.weight", (3, 63, 128), r"nn1 is \(3, 63, 128\) with biases \(3, 128\), expected 3 heads of 64 inputs"),
        ("nn2.weight", (2, 128, 128), r"nn2 is \(2, 128, 128\) with biases \(3, 128\), expected 3 heads of 128 inputs"),
        ("nn2.bias", (128,), r"nn2 is \(3, 128, 128\) with biases \(128,\), expected 3 heads of 128 inputs"),
        ("nn_out.weight", (128, 1), r"nn_out is \(128, 1\) with biases \(3, 1\), expected 3 heads of 128 inputs"),
        ("nn_out", (3, 128, 2), "nn_out has 2 outputs per head, expected one"),
    ],
)
def test_an_ensemble_of_another_shape_is_refused(places, tmp_path, name, shape, pattern):
    place = _changed(places["actprm"], tmp_path)
    tensors = load_file(place / "model.safetensors")
    if name == "nn_out":
        tensors["score.model.nn_out.bias"] = torch.zeros(3, 2)
        name = "nn_out.weight"
    tensors[f"score.model.{name}"] = torch.zeros(shape)
    save_file(tensors, place / "model.safetensors", {"format": "pt"})
    refused(place, pattern)


def test_a_mean_score_close_to_one_is_exact():
    head = EnsembleHead([torch.tensor([[[1.0]], [[2.0]]])], [torch.zeros(2, 1)])
    margin = head(torch.tensor([[60.0], [-60.0]]))
    # one minus the mean is (e^-60 + e^-120) / 2, where float32 would have 1 - 1 = 0
    assert margin.tolist() == pytest.approx([60 + math.log(2), -60 - math.log(2)], rel=1e-6)


@pytest.mark.parametrize("template", [checkpoints.QWEN3_CHAT, checkpoints.CHATML, checkpoints.LLAMA_CHAT])
@pytest.mark.parametrize("begin", [False, True])
def test_an_outcome_is_read_in_the_models_chat(places, tmp_path, template, begin):
    """Templates that strip both texts, one or none, and tokenizers that begin each text with a token."""
    place = _changed(places["outcome"], tmp_path)
    tokenizer = checkpoints.bytelevel(*map(checkpoints.special, [*checkpoints.QWEN, "<|begin_of_text|>"]))
    if begin:
        number = tokenizer.token_to_id("<|begin_of_text|>")
        tokenizer.post_processor = TemplateProcessing(
            single="<|begin_of_text|> $A", special_tokens=[("<|begin_of_text|>", number)]
        )
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, chat_template=template, bos_token="<|begin_of_text|>")
    fast.save_pretrained(place)
    engine, expected = load_engine(str(place), device="cpu", family="outcome"), references.outcome(place)
    for problem, steps in [
        (PROBLEM, STEPS),
        ("  What is 1 + 1?\n", [" 2", "So 2. "]),
        ("\ue001 \ue000", ["\ue000\ue001"]),
    ]:
        item = engine.format.encode(problem, steps)
        ids, scores = expected(problem, steps)
        assert list(item.ids) == ids
        assert columns(engine.score([item])).values[0] == pytest.approx(scores, abs=1e-5)


def test_an_outcome_is_read_before_padding(places, tmp_path):
    place = _changed(places["outcome"], tmp_path)
    config = json.loads((place / "config.json").read_text("utf-8"))
    newline = load_engine(str(place), device="cpu", family="outcome").format.encode("x", ["y"]).ids[-1]
    (place / "config.json").write_text(json.dumps(config | {"pad_token_id": newline}), "utf-8")
    engine, expected = load_engine(str(place), device="cpu", family="outcome"), references.outcome(place)
    item = engine.format.encode(PROBLEM, STEPS)
    assert set(item.positions) == {len(item.ids) - 2}
    assert columns(engine.score([item])).values[0] == pytest.approx(expected(PROBLEM, STEPS)[1], abs=1e-5)


@pytest.mark.parametrize(
    ("template", "pattern"),
    [
        (None, "has no chat template"),
        ("{{ raise_exception('a system turn comes first') }}", r"takes no problem and solution \(a system turn"),
        ("{{ messages[1].content }}", "does not repeat the user's message once"),
        ("{{ messages[0].content }}", "does not repeat the assistant's message once"),
        ("{% for turn in messages %}{{ turn.content }}{{ turn.content }}{% endfor %}", "the user's message once"),
    ],
)
def test_a_chat_that_an_outcome_is_not_read_in_is_refused(places, tmp_path, template, pattern):
    place = _changed(places["outcome"], tmp_path)
    (place / "chat_template.jinja").unlink()
    if template:
        (place / "chat_template.jinja").write_text(template, "utf-8")
    refused(place, pattern, family="outcome")


def test_a_classifier_of_several_classes_is_no_outcome(places, tmp_path):
    place = _changed(places["outcome"], tmp_path)
    tensors = load_file(place / "model.safetensors")
    tensors["score.weight"] = torch.zeros(2, 64)
    save_file(tensors, place / "model.safetensors", {"format": "pt"})
    refused(place, r"score is \(2, 64\), expected one row of 64", family="outcome")


def test_an_outcome_is_the_reward_of_a_solution(places):
    with serving(load_engine(str(places["outcome"]), device="cpu", family="outcome")) as running:
        answers = [
            running.post("/score_steps", {"problem": PROBLEM, "solutions": [STEPS], "aggregate": name}).json()
            for name in ("min", "mean", "last")
        ]
    (scores,) = {tuple(answer["solutions"][0]["step_scores"]) for answer in answers}
    assert len(scores) == len(STEPS)
    assert [answer["solutions"][0]["reward"] for answer in answers] == pytest.approx([scores[0]] * 3)


def test_a_checkpoint_that_is_cut_or_incomplete_is_refused(places, tmp_path):
    place = _changed(places["skywork"], tmp_path)
    whole = (place / "model.safetensors").read_bytes()
    (place / "model.safetensors").write_bytes(whole[: len(whole) // 2])
    refused(place, "can't be loaded")
    (place / "model.safetensors").write_bytes(whole)
    tensors = load_file(place / "model.safetensors")
    del tensors["model.norm.weight"]
    save_file(tensors, place / "model.safetensors", {"format": "pt"})
    refused(place, "1 tensors are missing, for example norm.weight")


def test_a_tokenizer_larger_than_the_model_is_refused(places, tmp_path):
    place = _changed(places["skywork"], tmp_path)
    checkpoints.bytelevel(*[checkpoints.AddedToken(f"<{k}>") for k in range(90)]).save(str(place / "tokenizer.json"))
    refused(place, "the tokenizer has 351 tokens, the model 265")


def test_reference_and_beta_are_for_likelihood_ratios(places):
    refused(places["skywork"], "for families that are scored by likelihood ratios", beta=0.1)
    refused(places["eurus"], "other vocabularies", family="eurus", reference=str(places["math-shepherd"]))


def test_likelihood_ratios_ensembles_and_outcomes_are_scored_by_torch_alone(places):
    arguments = options("eurus", places)
    refused(places["eurus"], "use --engine torch", **arguments, engine="vllm")
    refused(places["eurus"], "use --engine torch", **arguments, engine="remote", url="http://127.0.0.1:9")
    assert load_engine(str(places["eurus"]), **arguments, engine="auto").description.engine == "torch"
    for name in ("actprm", "outcome"):
        arguments = {**options(name, places), "engine": "remote", "url": "http://127.0.0.1:9"}
        refused(places[name], "use --engine torch", **arguments)
