"""Bases by name: one file that its digest identifies, from the hub or put into the cache by hand."""

import hashlib

import pytest
import torch

from tests.hub_server import hub_server
from tests.tiny import write_gguf
from unprm.checkpoints import bases
from unprm.checkpoints.bases import BASES, NamedBase
from unprm.checkpoints.files import fetch, fetch_tokenizer, load_base, load_tokenizer
from unprm.errors import ModelInvalid

WHOLE = b"GGUF, and so on to the end"
DIGEST = hashlib.sha256(WHOLE).hexdigest()
BASE = NamedBase("a-base", "Owner/A-Base", "2" * 40, "a-base.gguf", len(WHOLE), DIGEST)


def test_the_hub_keeps_its_own_file(tmp_path):
    with hub_server() as hub:
        hub.files[BASE.repository] = {BASE.file: WHOLE}
        found = bases.file(BASE, tmp_path, endpoint=hub.url, cache_dir=tmp_path / "hub")
        assert found.read_bytes() == WHOLE
    assert tmp_path / "hub" in found.parents
    assert bases.file(BASE, tmp_path, endpoint=hub.url, cache_dir=tmp_path / "hub") == found  # the hub is gone
    with pytest.raises(ModelInvalid, match="a-base can't be fetched from the hub ") as refused:
        bases.file(BASE, tmp_path, cache_dir=tmp_path / "other", local_files_only=True)
    assert f"put it at {tmp_path / DIGEST}.gguf" in str(refused.value)


def test_a_file_put_there_by_hand_comes_first(tmp_path):
    bases.by_hand(BASE, tmp_path).write_bytes(WHOLE)
    assert bases.file(BASE, tmp_path, local_files_only=True) == bases.by_hand(BASE, tmp_path)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (WHOLE[:-1], f"it has {len(WHOLE) - 1} bytes instead of {len(WHOLE)}"),
        (WHOLE[::-1], f"its SHA-256 is {hashlib.sha256(WHOLE[::-1]).hexdigest()} instead of {DIGEST}"),
    ],
)
def test_another_file_is_refused_wherever_it_comes_from(tmp_path, content, reason):
    with hub_server() as hub:
        hub.files[BASE.repository] = {BASE.file: content}
        with pytest.raises(ModelInvalid, match=f"{BASE.file} is not a-base: {reason}. Delete it"):
            bases.file(BASE, tmp_path, endpoint=hub.url, cache_dir=tmp_path / "hub")
    bases.by_hand(BASE, tmp_path).write_bytes(content)
    with pytest.raises(ModelInvalid, match=f"{DIGEST}.gguf is not a-base: {reason}. Delete it"):
        bases.file(BASE, tmp_path)


def test_names_lead_to_a_file_that_has_no_other_revision():
    for name, base in BASES.items():
        assert base.name == name
        assert len(base.sha256) == 64
        assert len(base.revision) == 40
        assert bases.hub_name(name) == base.repository
        with pytest.raises(ModelInvalid, match="no other revisions"):
            fetch(name, "main")
    assert bases.hub_name("some/model") == "some/model"


def test_a_file_becomes_a_directory_once(base, tmp_path):
    """With the same weights, and the composed characters that Qwen's own tokenizer makes."""
    write_gguf(base, tmp_path / "tiny.gguf")
    alone = load_tokenizer(fetch_tokenizer(str(tmp_path / "tiny.gguf"))).encode
    content = (tmp_path / "tiny.gguf").read_bytes()
    named = NamedBase("tiny", "o/t", "2" * 40, "tiny.gguf", len(content), hashlib.sha256(content).hexdigest())
    (tmp_path / "tiny.gguf").rename(bases.by_hand(named, tmp_path))
    place = bases.directory(named, tmp_path)
    ours, theirs = load_base(base, torch.bfloat16).state_dict(), load_base(place, torch.bfloat16).state_dict()
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    encode = load_tokenizer(place).encode
    assert encode("12 + 34 = 46").ids == load_tokenizer(base).encode("12 + 34 = 46").ids == alone("12 + 34 = 46").ids
    assert encode("s\u0327").ids == encode("\u015f").ids == alone("s\u0327").ids
    bases.by_hand(named, tmp_path).unlink()
    assert bases.directory(named, tmp_path) == place
