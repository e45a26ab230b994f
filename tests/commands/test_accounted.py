"""Every command and every request of the documentation has a test; what can't be run is at least understood."""

from pathlib import Path

import pytest

from tests.commands import programs, test_serving, test_training
from tests.commands.blocks import ROOT, RUN, Block, fenced, spoken
from tests.pages import AGENT_PAGES, AGENTS_PROGRAMS, EXAMPLES, PLUGS_PROGRAMS

HERE = test_serving, test_training
"""Imported for what they enter in `RUN`."""
NOT_RUN = ("make", "docker", "pip")
"""Programs that would make environments or images."""


def understood(block: Block, words: list[str]) -> bool:
    """Whether a command is not run but looked at."""
    return block.marked or not set(words[:3]).isdisjoint(NOT_RUN)


UNDERSTOOD = [
    (block, words)
    for block in fenced()
    if block.language != "python"
    for words in block.commands()
    if understood(block, words)
]
OURS = [(block, words) for block, words in UNDERSTOOD if programs.ours(words)]


def elsewhere(block: Block) -> bool:
    """Whether a test of its page runs it."""
    if block.page in AGENT_PAGES:
        return block.text in AGENTS_PROGRAMS or block.text.startswith(("cat", "curl"))
    if block.page == "docs/plugs.md" and block.text in PLUGS_PROGRAMS.values():
        return True
    return (block.page, block.text) in [(page, command) for page, command, _ in EXAMPLES]


@pytest.mark.parametrize("block", fenced(), ids=str)
def test_a_block_has_its_test(block: Block) -> None:
    looked_at = block.language != "python" and all(understood(block, words) for words in block.commands())
    assert (block in RUN) + elsewhere(block) + looked_at == 1


@pytest.mark.parametrize(
    ("block", "words"), UNDERSTOOD, ids=lambda value: str(value) if isinstance(value, Block) else ""
)
def test_a_command_that_is_not_run_is_understood(
    block: Block, words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    programs.check(words, tmp_path)


@pytest.mark.parametrize(("block", "words"), OURS, ids=str)
def test_a_command_that_is_not_run_is_whole(block: Block, words: list[str]) -> None:
    assert programs.missing(words) == set()


@pytest.mark.parametrize("block", [*fenced(), *spoken()], ids=str)
def test_no_command_leaves_something_out(block: Block) -> None:
    """What a test can't run, `<!-- not run: … -->` says above the block, where no reader sees it."""
    assert "…" not in block.text


@pytest.mark.parametrize("block", spoken(), ids=str)
def test_a_command_within_a_sentence_is_understood(
    block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (words,) = block.commands()
    programs.check(words, tmp_path)


@pytest.mark.parametrize("name", ["Dockerfile", "compose.yaml", "compose.scale.yaml"])
def test_commands_in_the_comments_of_docker_are_understood(name: str) -> None:
    found = list(programs.commented(ROOT / "docker" / name))
    assert found
    for text in found:
        (words,) = Block(name, 0, "sh", text).commands()
        programs.check(words, ROOT)
