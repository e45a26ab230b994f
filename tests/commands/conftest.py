"""Where the documentation's commands run: small models under the names of large ones."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.commands.world import PRM, REASONERS, World
from unprm import mini


@pytest.fixture(scope="session")
def prm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model of the family that the documentation's PRM of the hub has."""
    from tests import checkpoints

    return checkpoints.write("qwen-prm", tmp_path_factory.mktemp("hub") / "prm")


@pytest.fixture
def world(tmp_path: Path, prm: Path) -> World:
    """With the embedded reasoner under the names of larger ones."""
    made = World(tmp_path)
    for name in REASONERS:
        made.publish(name, mini.BASE)
    made.publish(PRM, prm)
    return made


@pytest.fixture(scope="session")
def reasoner(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server of the embedded reasoner."""
    reasoner_world = World(tmp_path_factory.mktemp("reasoner"))
    with reasoner_world.serving(f"python -m tests.reasoner --port {reasoner_world.port}", "/health"):
        yield reasoner_world.url
