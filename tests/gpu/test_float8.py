"""Linear layers in float8."""

import pytest
import torch

from tests.tiny import largest_error


def test_eight_bits_are_near(cuda):
    if torch.cuda.get_device_capability(cuda) < (8, 9):
        pytest.skip("products in float8 need a GPU of compute capability 8.9 (Ada, Hopper) or later")
    assert largest_error("float8", "cuda") < 0.15
