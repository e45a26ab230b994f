"""Bases of the studies: one file that its digest identifies, from the hub or put into the cache by hand."""

import hashlib

import pytest
import torch

from research.bases import Base, read_tokenizer
from tests.hub_server import hub_server
from tests.tiny import write_gguf
from unprm.checkpoints.files import load_base, load_tokenizer
from unprm.errors import ModelInvalid

WHOLE = b"GGUF, and so on to the end"
DIGEST = hashlib.sha256(WHOLE).hexdigest()
BASE = Base("Owner/A-Base", "2" * 40, "a-base.gguf", len(WHOLE), DIGEST)


def test_the_hub_keeps_its_own_file(tmp_path):
    with hub_server() as hub:
        hub.files[BASE.repository] = {BASE.file: WHOLE}
        found = BASE.find(tmp_path, endpoint=hub.url, cache_dir=tmp_path / "hub")
        assert found.read_bytes() == WHOLE
    assert tmp_path / "hub" in found.parents
    assert BASE.find(tmp_path, endpoint=hub.url, cache_dir=tmp_path / "hub") == found  # the hub is gone
    with pytest.raises(ModelInvalid, match=r"a-base\.gguf can't be fetched from the hub ") as refused:
        BASE.find(tmp_path, cache_dir=tmp_path / "other", local_files_only=True)
    assert f"put it at {tmp_path / DIGEST}.gguf" in str(refused.value)


def test_a_file_put_there_by_hand_comes_first(tmp_path):
    BASE.by_hand(tmp_path).write_bytes(WHOLE)
    assert BASE.find(tmp_path, local_files_only=True) == BASE.by_hand(tmp_path)


def test_another_file_is_refused_wherever_it_comes_from(tmp_path):
    content = WHOLE[::-1]
    reason = f"its SHA-256 is {hashlib.sha256(content).hexdigest()} instead of {DIGEST}"
    with hub_server() as hub:
        hub.files[BASE.repository] = {BASE.file: content}
        with pytest.raises(ModelInvalid, match=f"{BASE.file} is not a-base.gguf: {reason}. Delete it"):
            BASE.find(tmp_path, endpoint=hub.url, cache_dir=tmp_path / "hub")
    BASE.by_hand(tmp_path).write_bytes(content)
    with pytest.raises(ModelInvalid, match=f"{DIGEST}.gguf is not a-base.gguf: {reason}. Delete it"):
        BASE.find(tmp_path)


def test_a_file_becomes_a_directory_once(base, tmp_path):
    """With the same weights, and the composed characters that Qwen's own tokenizer makes."""
    write_gguf(base, tmp_path / "tiny.gguf")
    alone = read_tokenizer(tmp_path / "tiny.gguf").backend_tokenizer.encode
    content = (tmp_path / "tiny.gguf").read_bytes()
    named = Base("o/t", "2" * 40, "tiny.gguf", len(content), hashlib.sha256(content).hexdigest())
    (tmp_path / "tiny.gguf").rename(named.by_hand(tmp_path))
    place = named.directory(tmp_path)
    ours, theirs = load_base(base, torch.bfloat16).state_dict(), load_base(place, torch.bfloat16).state_dict()
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    encode = load_tokenizer(place).encode
    assert encode("12 + 34 = 46").ids == load_tokenizer(base).encode("12 + 34 = 46").ids == alone("12 + 34 = 46").ids
    assert encode("s\u0327").ids == encode("\u015f").ids == alone("s\u0327").ids
    named.by_hand(tmp_path).unlink()
    assert named.directory(tmp_path) == place
