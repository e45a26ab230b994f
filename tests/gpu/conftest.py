"""Tests of what runs on a GPU; each runs on the CPU as well where that means anything."""

import warnings
from pathlib import Path

import pytest
import torch

with warnings.catch_warnings():  # PyTorch warns of a driver that it can't use
    warnings.simplefilter("ignore")
    ON_CUDA = pytest.param(
        "cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU that PyTorch sees")
    )


@pytest.fixture(params=["cpu", ON_CUDA])
def device(request: pytest.FixtureRequest) -> torch.device:
    return torch.device(request.param)


@pytest.fixture(params=[ON_CUDA])
def cuda(request: pytest.FixtureRequest) -> torch.device:
    return torch.device(request.param)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """On a GPU warnings are no failures: drivers and compilers have their own for every card."""
    if torch.cuda.is_available():
        for item in items:
            if Path(__file__).parent in item.path.parents:
                item.add_marker(pytest.mark.filterwarnings("default"))
