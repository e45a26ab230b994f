"""Scoring with real vLLM, in this process and through its server, against the torch engine; `make test-vllm`."""

import random
import re
import shlex
from contextlib import closing

import httpx
import pytest

pytest.importorskip("vllm", reason="vLLM has an environment of its own: make test-vllm")

import torch
from huggingface_hub import HfApi

from benchmarks import servers
from tests import checkpoints
from tests.support import columns
from training.prm.publish import merge_adapter, published_card
from unprm import mini
from unprm.checkpoints.files import load_tokenizer, locate
from unprm.engines.vllm.model import prepare
from unprm.errors import ModelInvalid
from unprm.formats.family import Verdicts
from unprm.formats.unprm import PrmConfig
from unprm.models.load import load_engine
from unprm.types import Encoded

# what vLLM and PyTorch warn of in their own code
pytestmark = pytest.mark.filterwarnings("default")

PROBLEM = "Mia has 30 marbles. Mia finds 12 marbles. How many marbles does Mia have now?"
SOLUTIONS = [
    ["Step 1: 30 + 12 = 42.", "The answer is \\boxed{42}."],
    ["Step 1: 30 - 12 = 18.", "The answer is \\boxed{18}."],
    ["Step 1: 30 + 12 = 41.", "Step 2: 41 + 1 = 42.", "The answer is \\boxed{42}."],
    ["\\boxed{42}"],
]


def agree(scores, expected, tolerance):
    for values, reference in zip(scores, expected, strict=True):
        assert values == pytest.approx(reference, abs=tolerance)


def compare(model, tolerance, **options):
    """Asserts that scores of vLLM and of torch are equal, and differ between solutions."""
    with closing(load_engine(model, device="cpu", **options)) as plain:
        batch = [plain.format.encode(PROBLEM, steps) for steps in SOLUTIONS]
        expected = columns(plain.score(batch)).values
    with closing(load_engine(model, engine="vllm", device="cpu", **options)) as engine:
        assert engine.description.engine == "vllm"
        scores = columns(engine.score(batch)).values
        agree(columns(engine.score(batch[::-1])).values, expected[::-1], tolerance)
    agree(scores, expected, tolerance)
    every = [value for values in expected for value in values]
    assert max(every) - min(every) > 0.05


def test_a_lora_prm_scores_in_bfloat16_as_with_torch():
    compare(mini.NAME, 2e-2, dtype="bfloat16")


@pytest.mark.parametrize("family", ["math-shepherd", "rlhflow", "qwen-prm", "skywork", "granite", "trl"])
def test_published_families_score_as_with_torch(family, tmp_path):
    place = checkpoints.write(family, tmp_path / family)
    compare(str(place), 1e-3, family=family)


def test_a_server_of_vllm_scores_as_torch_does(tmp_path):
    with closing(load_engine(mini.NAME, device="cpu")) as plain:
        batch = [plain.format.encode(PROBLEM, steps) for steps in SOLUTIONS]
        expected = columns(plain.score(batch)).values
        readout = plain.format.readout
    files = locate(mini.NAME, None, None, None)
    model = prepare(files, readout, load_tokenizer(files.base), torch.float32)
    served = servers.vllm(model.directory, "--dtype=float32", *model.options)
    with served as url, closing(load_engine(mini.NAME, engine="remote", url=url)) as engine:
        scores = columns(engine.score(batch)).values
        assert engine.description.device == url
        assert engine.description.self_test.difference < 1e-3
        assert not engine.description.self_test.cached
    agree(scores, expected, 1e-3)
    with pytest.raises(ModelInvalid, match="does not score"):
        load_engine(mini.NAME, engine="remote", url=url)


def test_the_card_s_line_serves_a_merged_prm(tmp_path):
    place = tmp_path / "merged"
    merge_adapter(mini.NAME, None, place, torch.float32)
    text = published_card(place, str(place), None, None, HfApi()).text
    (line,) = re.findall(r"^vllm serve .*$", text, re.MULTILINE)
    _, _, model, *options = shlex.split(line)
    assert (model, "hf-overrides" in line) == (str(place), False)
    with closing(load_engine(mini.NAME, device="cpu")) as plain:
        batch = [plain.format.encode(PROBLEM, steps) for steps in SOLUTIONS]
        expected = columns(plain.score(batch)).values
    with servers.vllm(place, "--dtype=float32", *options) as url:
        body = {"model": model, "input": [item.ids for item in batch], "task": "token_classify"}
        rows = httpx.post(f"{url}/pooling", json=body, timeout=600).json()["data"]
        scores = [[row["data"][k][1] for k in item.positions] for row, item in zip(rows, batch, strict=True)]
        with closing(load_engine(str(place), engine="remote", url=url)) as engine:
            agree(columns(engine.score(batch)).values, expected, 1e-3)
    agree(scores, expected, 1e-3)


@pytest.mark.xdist_group("reasoner")
def test_a_server_that_only_generates_is_refused(reasoner):
    with pytest.raises(ModelInvalid, match="--runner pooling"):
        load_engine(mini.NAME, engine="remote", url=reasoner)


def test_what_vllm_knows_is_not_run_again_and_changes_no_score():
    """Holds vLLM to a field that it marks as internal: with it the prefix cache is read, and the rest is returned."""
    from unprm.engines.vllm.engine import BLOCK  # vLLM warns when it is imported

    rng = random.Random(0)
    problem = " ".join([PROBLEM] * 4)
    steps = [f"Step {k}: 30 + {k} = {30 + k}." for k in range(1, 13)]
    with closing(load_engine(mini.NAME, device="cpu")) as plain:
        items = [plain.format.encode(problem, steps[:count]) for count in range(1, 13)]
        items += [plain.format.encode(problem, [*steps[:count], "The answer is 7."]) for count in range(0, 12, 3)]
        # the same tokens with only every second position scored
        items += [Encoded(item.ids, item.positions[1::2], item.response) for item in items if len(item.positions) > 3]
        expected = columns(plain.score(items)).values
    with closing(load_engine(mini.NAME, engine="vllm", device="cpu", prefix_cache_gb=1.0)) as engine:
        assert engine.description.self_test.cached
        grown = [columns(engine.score([item])) for item in items[:12]]
        agree([result.values[0] for result in grown], expected[:12], 1e-3)
        for result, before, item in zip(grown[1:], items, items[1:12], strict=False):
            assert result.computed[0] <= len(item.ids) - len(before.ids) + BLOCK
        for _ in range(10):
            numbers = rng.choices(range(len(items)), k=rng.randint(1, 6))
            scores = columns(engine.score([items[number] for number in numbers])).values
            agree(scores, [expected[number] for number in numbers], 1e-3)
        assert columns(engine.score(items[:12])).computed == [0] * 12
    with closing(load_engine(mini.NAME, engine="vllm", device="cpu")) as engine:
        assert not engine.description.self_test.cached
        for _ in range(2):
            result = columns(engine.score(items[:3]))
            agree(result.values, expected[:3], 1e-3)
            assert result.computed == [len(item.ids_to_last_position) for item in items[:3]]


def test_what_was_written_for_vllm_is_found_again():
    files = locate(mini.NAME, None, None, None)
    config, tokenizer = PrmConfig.read(mini.ADAPTER), load_tokenizer(files.base)
    readout = Verdicts(config.positive_id, config.negative_id)
    first = prepare(files, readout, tokenizer, torch.float32)
    written = (first.directory / "model.safetensors").stat().st_mtime_ns
    again = prepare(files, readout, tokenizer, torch.float32)
    assert (again, (again.directory / "model.safetensors").stat().st_mtime_ns) == (first, written)
    assert prepare(files, readout, tokenizer, torch.bfloat16).directory != first.directory
    assert first.overrides["classifier_from_token"] == ["-", "+"]


def test_likelihood_ratios_are_left_to_torch(tmp_path):
    place = checkpoints.write("eurus", tmp_path / "eurus")
    with pytest.raises(ModelInvalid, match="use --engine torch"):
        load_engine(str(place), family="eurus", reference=str(place), engine="vllm")
