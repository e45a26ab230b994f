"""Models that many tests share: made once, never changed."""

import gc
import os
from pathlib import Path

import pytest
from hypothesis import settings

from tests.installed import environment_with, package, wheel

__all__ = ["environment_with", "package", "wheel"]

# HTTP clients ask servers on loopback: to read the world's authorities takes each of them longer than most tests
os.environ.pop("SSL_CERT_FILE", None)
os.environ["SSL_CERT_DIR"] = str(Path(__file__).parent)

# how long an example takes says more about the machine than about the code
settings.register_profile("unprm", deadline=None)
settings.load_profile("unprm")

# what is imported and collected lives to the end: to look through it for garbage again and again takes a second each
# time
gc.disable()


def pytest_collection_finish() -> None:
    gc.collect()
    gc.freeze()
    gc.enable()


# torch takes seconds to import: only the fixtures that need it do


@pytest.fixture(scope="session")
def base(tmp_path_factory) -> Path:
    """Directory of a tiny base model."""
    from tests.tiny import write_base

    return write_base(tmp_path_factory.mktemp("tiny") / "base")


@pytest.fixture(scope="session")
def adapter(base) -> Path:
    """Directory of a PRM adapter with random weights for `base`, beside it."""
    from tests.tiny import write_adapter

    return write_adapter(base.parent / "adapter", base, 1, "tiny-prm")
