"""What leaves the house: merged checkpoints, and models on the hub."""

import json
import shutil
from contextlib import closing
from pathlib import Path

import pytest
import torch
from huggingface_hub import HfApi, ModelCard, constants
from huggingface_hub.errors import HfHubHTTPError
from transformers import AutoModelForTokenClassification
from typer.testing import CliRunner

from tests import checkpoints
from tests.hub_server import TOKEN, hub_server
from tests.support import columns
from tests.tiny import write_probe
from training.__main__ import app
from training.prm.publish import merge_adapter, published_card, push, write_card
from training.prm.train_settings import TrainSettings, TrainSummary
from unprm import mini
from unprm.checkpoints.files import load_tokenizer, read_config
from unprm.errors import ModelInvalid, OutputMismatch
from unprm.formats.unprm import PrmConfig
from unprm.models.load import load_engine

STEPS = ["Step 1: 12 + 34 = 46.", "The answer is \\boxed{46}."]
PROBLEM = "12 + 34? <|endoftext|> ş"
NAME = "somebody/my-prm"


def expected_scores(model, problem=PROBLEM, steps=STEPS):
    with closing(load_engine(str(model), device="cpu")) as engine:
        return columns(engine.score([engine.format.encode(problem, steps)])).values[0]


@pytest.fixture
def merged(adapter, tmp_path):
    """The merged checkpoint of the tiny adapter."""
    merge_adapter(str(adapter), None, tmp_path / "merged", torch.float32)
    return tmp_path / "merged"


def test_a_merged_prm_scores_as_base_and_adapter_do_and_needs_neither(base, adapter, tmp_path):
    home = tmp_path / "home"
    shutil.copytree(base, home / "base")
    shutil.copytree(adapter, home / "adapter")
    (home / "adapter" / "calibration.json").write_text('{"scale": 1.5, "shift": 0.25}', "utf-8")
    (home / "adapter" / "README.md").write_text("---\nlibrary_name: peft\nlicense: mit\n---\n# Mine\n", "utf-8")
    output = tmp_path / "merged"
    merge_adapter(str(home / "adapter"), None, output, torch.float32)
    shutil.rmtree(home)
    assert expected_scores(output) == pytest.approx(expected_scores(adapter), abs=1e-6)
    with closing(load_engine(str(output), device="cpu")) as engine:
        assert (engine.description.name, engine.description.adapter) == ("tiny-prm", None)
    assert json.loads((output / "calibration.json").read_text("utf-8"))["scale"] == 1.5
    assert (output / "README.md").read_text("utf-8") == "---\nlibrary_name: transformers\nlicense: mit\n---\n# Mine\n"
    assert (
        len({path.stat().st_mode for path in output.iterdir() if path.is_file()}) == 1
    )  # whoever may read one may read all


@pytest.mark.parametrize("prm", ["tied", "untied"])
def test_a_merged_prm_is_a_classifier_of_transformers_and_its_card_serves_it_by_vllm(adapter, tmp_path, prm):
    model, place = mini.NAME if prm == "tied" else str(adapter), tmp_path / prm
    merge_adapter(model, None, place, torch.float32)
    assert read_config(place)["tie_word_embeddings"] == (prm == "tied")
    text = published_card(place, NAME, None, None, HfApi()).text
    assert f"vllm serve {NAME}" in text
    assert "two probabilities for each; a step's score is the\nsecond one at its tag, `ş`:" in text
    assert "hf-overrides" not in text
    with closing(load_engine(model, device="cpu")) as engine:
        encoded = engine.format.encode(PROBLEM, STEPS)
        expected = columns(engine.score([encoded])).values[0]
    classifier = AutoModelForTokenClassification.from_pretrained(place).eval()
    with torch.no_grad():
        logits = classifier(torch.tensor([encoded.ids])).logits[0, list(encoded.positions)]
    assert logits.softmax(-1)[:, 1].tolist() == pytest.approx(expected, abs=1e-4)


def test_an_architecture_without_a_classifier_is_merged_as_it_is(tmp_path):
    base = checkpoints.write("granite", tmp_path / "granite")
    PrmConfig.for_base(load_tokenizer(base), "prm", ".", step_tag="#").write(base)
    merge_adapter(str(base), None, tmp_path / "merged", torch.float32)
    text = published_card(tmp_path / "merged", NAME, None, None, HfApi()).text
    assert "GraniteForSequenceClassification" in text
    assert "returns one for each; a step's score is the\none at its tag, `#`:" in text
    assert expected_scores(tmp_path / "merged") == pytest.approx(expected_scores(base), abs=1e-6)


def test_nothing_is_overwritten(adapter, tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(OutputMismatch, match="not empty"):
        merge_adapter(str(adapter), None, tmp_path, torch.float32)


def test_what_can_not_be_published_is_not_pushed(adapter, merged, tmp_path):
    with hub_server() as hub:
        api = HfApi(hub.url, TOKEN)
        with pytest.raises(ModelInvalid, match=r"prm_config\.json"):
            push(tmp_path, NAME, api=api)
        with pytest.raises(ModelInvalid, match=r"local base \.\./base"):
            push(adapter, NAME, api=api)
        probe = write_probe(tmp_path / "probe", str(merged))
        with pytest.raises(ModelInvalid, match="is a probe, which has no adapter to merge: publish the directory"):
            push(probe, NAME, api=api)
        with pytest.raises(ModelInvalid, match="is a probe"):
            merge_adapter(str(probe), None, tmp_path / "output", torch.float32)
        with pytest.raises(ModelInvalid, match="no repository of the hub can be called 'a//b'"):
            push(merged, "a//b", api=api)
        with pytest.raises(HfHubHTTPError, match="Invalid user token"):
            push(merged, NAME, api=HfApi(hub.url, "hf_other"))
        (merged / "model.safetensors").unlink()
        with pytest.raises(ModelInvalid, match="has no safetensors"):
            push(merged, NAME, api=api)
        assert hub.changes == []


def test_a_merged_prm_is_pushed_beside_what_is_there_and_only_once(merged):
    with hub_server() as hub:
        hub.files[NAME] = {"notes.txt": b"mine"}
        api = HfApi(hub.url, TOKEN)
        assert push(merged, NAME, api=api) == f"{hub.url}/{NAME}"
        files = hub.files[NAME]
        assert files["notes.txt"] == b"mine"
        assert {"config.json", "model.safetensors", "prm_config.json", "tokenizer.json", "README.md"} < files.keys()
        assert not [path for path in files if path.startswith("adapter")]
        assert read_config(merged)["architectures"] == ["Qwen2ForTokenClassification"]
        push(merged, NAME, api=api)
        assert hub.changes.count("commit") == 1


def test_an_adapter_is_pushed_with_its_merged_model_and_a_card(base, adapter, tmp_path, monkeypatch):
    prm = tmp_path / "my-prm"
    shutil.copytree(adapter, prm)
    hub_name = "somebody/tiny-base"
    snapshot = tmp_path / "hub" / "models--somebody--tiny-base" / "snapshots" / ("0" * 40)
    snapshot.parent.mkdir(parents=True)
    snapshot.symlink_to(base)
    config = PrmConfig.read(prm).model_copy(update={"base": hub_name, "base_revision": "0" * 40})
    config.write(prm)
    (prm / "checkpoint.safetensors").write_bytes(b"no part of the model")
    local = tmp_path / "private" / "steps.jsonl"
    local.parent.mkdir()
    local.touch()
    data = (local, Path("somebody/steps"))
    settings = TrainSettings(hub_name, data, prm, loss="mse", lora_targets=("q_proj", "k_proj"), bf16=True)
    write_card(prm, config, settings, TrainSummary(10, 1, 2, 0.5))
    (tmp_path / "figures.md").write_text("| F1 | 50.0 (40.0–60.0) |\n", "utf-8")
    with hub_server() as hub:
        hub.licences = {hub_name: "apache-2.0", "somebody/steps": "mit"}
        # the environment, which the hub's library has read already
        monkeypatch.setattr(constants, "ENDPOINT", hub.url)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
        monkeypatch.setenv("HF_TOKEN", TOKEN)
        monkeypatch.chdir(tmp_path)
        done = CliRunner(env={"COLUMNS": "400"}).invoke(app, ["push", "my-prm", NAME, "--figures", "figures.md"])
        assert done.exit_code == 0, done.output
        assert f"{hub.url}/{NAME}" in done.output
        files = hub.files[NAME]
    adapter_files = {path for path in files if path.startswith("adapter/")}
    assert adapter_files == {
        f"adapter/{name}" for name in ("adapter_config.json", "adapter_model.safetensors", "prm_config.json")
    }
    assert "checkpoint.safetensors" not in files
    published = tmp_path / "published"
    for path, content in files.items():
        (published / path).parent.mkdir(parents=True, exist_ok=True)
        (published / path).write_bytes(content)
    assert expected_scores(published) == pytest.approx(expected_scores(adapter), abs=1e-6)
    card = ModelCard.load(published / "README.md")
    assert card.data.to_dict() == {
        "base_model": hub_name,
        "datasets": ["somebody/steps"],
        "library_name": "transformers",
        "license": "apache-2.0",
        "pipeline_tag": "token-classification",
        "tags": ["process-reward-model", "unprm"],
    }
    for text in (
        f"unprm serve --model {NAME}",
        "| data | steps.jsonl, somebody/steps |",
        "| F1 | 50.0 (40.0–60.0) |",
        "- `somebody/steps`: mit",
        f"unprm train --base {hub_name} --data steps.jsonl --data somebody/steps --output my-prm --loss mse "
        "--lora-targets q_proj,k_proj --bf16",
    ):
        assert text in card.text
    assert str(tmp_path) not in card.text


def test_a_local_base_is_named_by_its_last_part_and_has_no_licence(adapter, merged):
    settings = TrainSettings("base", (), merged)
    write_card(merged, PrmConfig.read(adapter), settings, TrainSummary(10, 1, 2, 0.5))
    card = published_card(merged, NAME, None, None, HfApi("http://127.0.0.1:1"))
    assert "a LoRA adapter for `base`" in card.text
    assert "base_model" not in card.data.to_dict()
    assert "not stated" not in card.text
