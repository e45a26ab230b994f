"""Bases by name: one file that its digest identifies, from wherever it can be had."""

import hashlib
import logging
import multiprocessing
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from zipfile import ZipFile

import pytest

from tests.hub_server import hub_server
from tests.support import PATIENCE
from unprm.checkpoints import bases
from unprm.checkpoints.bases import BASES, NamedBase, SourceFailed, from_hub, from_packages
from unprm.checkpoints.cache import logger
from unprm.errors import ModelInvalid

PARTS = (b"GGUF, and so ", b"on to the ", b"end")
WHOLE = b"".join(PARTS)
DIGEST = hashlib.sha256(WHOLE).hexdigest()
BASE = NamedBase("a-base", "Owner/A-Base", "2" * 40, "a-base.gguf", len(WHOLE), DIGEST,
                 tuple(f"a-base-part{number}==1.0" for number in range(1, 4)))  # fmt: skip


def shelf(place, parts=PARTS, name="data/part{number:02}.bin"):
    """A directory of wheels, each with a part, that fail where they are installed; pip's options for it."""
    place.mkdir()
    for number, part in enumerate(parts, 1):
        package = f"a_base_part{number}"
        with ZipFile(place / f"{package}-1.0-py3-none-any.whl", "w") as wheel:
            wheel.writestr(f"{package}/__init__.py", "raise SystemExit('imported')")
            wheel.writestr(f"{package}/{name.format(number=number)}", part)
            about = f"{package}-1.0.dist-info"
            wheel.writestr(f"{about}/METADATA", f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n"
                           "Requires-Dist: what-nobody-has\n")  # fmt: skip
            wheel.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
            wheel.writestr(f"{about}/RECORD", "")
    return partial(from_packages, options=("--no-index", "--find-links", str(place)))


def without(base, place):
    raise SourceFailed("nobody has it")


def never(base, place):
    raise AssertionError("a source was asked that is not needed")


def lies(base, place):
    place.write_bytes(WHOLE[::-1])
    return place


def test_the_parts_of_packages_are_joined_and_kept(tmp_path):
    cache = tmp_path / "cache"
    cache.mkdir()
    found = bases.file(BASE, cache, (without, shelf(tmp_path / "wheels")))
    assert found.read_bytes() == WHOLE
    assert bases.file(BASE, cache, (never,)) == found
    assert {path.suffix for path in cache.iterdir()} <= {".gguf", ".lock"}


def test_the_hub_comes_first_and_keeps_its_own_file(tmp_path):
    cache = tmp_path / "cache"
    cache.mkdir()
    with hub_server() as hub:
        hub.files[BASE.repository] = {BASE.file: WHOLE}
        source = partial(from_hub, endpoint=hub.url, cache_dir=tmp_path / "hub")
        found = bases.file(BASE, cache, (source, never))
        assert found.read_bytes() == WHOLE
        with pytest.raises(SourceFailed, match="the hub: "):
            source(replace(BASE, repository="Owner/Another"), cache / "a")
    assert tmp_path / "hub" in found.parents
    assert bases.file(BASE, cache, (source, never)) == found  # the hub is gone
    with pytest.raises(SourceFailed, match="the hub: "):  # as when it can't be reached, without trying for long
        from_hub(BASE, cache / "a", cache_dir=tmp_path / "other", local_files_only=True)


def test_another_file_is_refused_wherever_it_comes_from(tmp_path):
    with hub_server() as hub:
        hub.files[BASE.repository] = {BASE.file: WHOLE[:-1]}
        source = partial(from_hub, endpoint=hub.url, cache_dir=tmp_path / "hub")
        with pytest.raises(ModelInvalid) as refused:
            bases.file(BASE, tmp_path, (source, lies))
    text = str(refused.value)
    assert f"it has {len(WHOLE) - 1} bytes instead of {len(WHOLE)}" in text
    assert f"its SHA-256 is {hashlib.sha256(WHOLE[::-1]).hexdigest()} instead of {DIGEST}" in text
    assert f"put it at {tmp_path / DIGEST}.gguf" in text
    assert not list(tmp_path.glob("*.gguf")) + list(tmp_path.glob("*.partial"))


@pytest.mark.parametrize("content", [WHOLE[:5], WHOLE[::-1]])
def test_a_wrong_file_in_the_cache_is_named(tmp_path, content):
    kept = tmp_path / f"{DIGEST}.gguf"
    kept.write_bytes(content)
    with pytest.raises(ModelInvalid, match=f"{DIGEST}.gguf is not a-base: .* Delete it"):
        bases.file(BASE, tmp_path, (never,))


@pytest.mark.parametrize(
    ("parts", "name", "reason"),
    [
        (PARTS[:2], "data/part{number:02}.bin", r"the package a-base-part3==1.0: ERROR: .*"),
        (PARTS, "other/part{number:02}.bin", "part1==1.0: it has 0 files data/part"),
        ((*PARTS[:2], b"end, and more"), "data/part{number:02}.bin", "part3==1.0: it makes the file longer than"),
    ],
)
def test_packages_without_the_parts_are_named(tmp_path, parts, name, reason):
    with pytest.raises(ModelInvalid, match=reason):
        bases.file(BASE, tmp_path, (shelf(tmp_path / "wheels", parts, name),))


def slowly(base, place, asked, go_on):
    """Writes half of the file, and the rest when it may."""
    asked.release()
    with place.open("wb") as file:
        file.write(WHOLE[:7])
        file.flush()
        assert go_on.acquire(timeout=PATIENCE)
        file.write(WHOLE[7:])
    return place


class Told(logging.Handler):
    """Releases a semaphore at each message."""

    def __init__(self, told):
        super().__init__()
        self.emit = lambda record: told.release()


def get(cache, asked, go_on, results, waits):
    logger.addHandler(Told(waits))
    logger.setLevel(logging.INFO)
    results.put(bases.file(BASE, cache, (partial(slowly, asked=asked, go_on=go_on),)).read_bytes())


@contextmanager
def processes(count, cache):
    """Runs `get` in processes; yields them, three semaphores and the queue of results."""
    context = multiprocessing.get_context("spawn")
    asked, go_on, waits, results = (*(context.Semaphore(0) for _ in range(3)), context.Queue())
    started = [context.Process(target=get, args=(cache, asked, go_on, results, waits)) for _ in range(count)]
    for process in started:
        process.start()
    try:
        yield started, asked, go_on, waits, results
    finally:
        for process in started:
            process.kill()
            process.join()


def test_two_processes_at_once_fetch_it_once(tmp_path):
    with processes(2, tmp_path) as (_, asked, go_on, waits, results):
        assert asked.acquire(timeout=PATIENCE)
        assert waits.acquire(timeout=PATIENCE)
        go_on.release()
        assert [results.get(timeout=PATIENCE) for _ in range(2)] == [WHOLE, WHOLE]
        assert not asked.acquire(block=False)


def test_a_download_that_was_killed_leaves_nothing_in_the_way(tmp_path):
    with processes(1, tmp_path) as ((process,), asked, *_):
        assert asked.acquire(timeout=PATIENCE)
        process.kill()
        process.join()
        assert bases.file(BASE, tmp_path, (shelf(tmp_path / "wheels"),)).read_bytes() == WHOLE


def test_names_lead_to_a_file_that_has_no_other_revision():
    from unprm.checkpoints.files import fetch  # not in the processes above, as PyTorch takes seconds

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
    import torch

    from tests.tiny import write_gguf
    from unprm.checkpoints.files import fetch_tokenizer, load_base, load_tokenizer

    write_gguf(base, tmp_path / "tiny.gguf")
    alone = load_tokenizer(fetch_tokenizer(str(tmp_path / "tiny.gguf"))).encode
    content = (tmp_path / "tiny.gguf").read_bytes()
    named = NamedBase("tiny", "o/t", "2" * 40, "tiny.gguf", len(content), hashlib.sha256(content).hexdigest(), ())
    (tmp_path / "tiny.gguf").rename(tmp_path / f"{named.sha256}.gguf")
    place = bases.directory(named, tmp_path)
    ours, theirs = load_base(base, torch.bfloat16).state_dict(), load_base(place, torch.bfloat16).state_dict()
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    encode = load_tokenizer(place).encode
    assert encode("12 + 34 = 46").ids == load_tokenizer(base).encode("12 + 34 = 46").ids == alone("12 + 34 = 46").ids
    assert encode("s\u0327").ids == encode("\u015f").ids == alone("s\u0327").ids
    (tmp_path / f"{named.sha256}.gguf").unlink()
    assert bases.directory(named, tmp_path) == place
