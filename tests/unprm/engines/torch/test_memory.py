"""The size of the prefix cache where none is given."""

import pytest

from unprm.engines.torch.memory import CACHED, SPARE, cache_bytes, pass_tokens
from unprm.models.load import CPU_CACHE, load_model
from unprm.models.options import EngineOptions, ModelSpec
from unprm.types import MemoryPlan

GB, SLOT = 10**9, 57_344
MODEL = MemoryPlan(weights=15 * GB, slots=1 * GB, activations=2 * GB)


@pytest.mark.parametrize(
    ("share", "free", "size"),
    [
        (0.9, 64, (72 - 18) * GB),
        (0.4, 25, (32 - 18) * GB),  # half of the GPU is another program's
        (0.9, 25, (25 - 3) * GB - SPARE),
        (0.2, 64, 0),
        (0.9, 2, 0),
    ],
)
def test_a_cache_takes_what_the_share_of_the_gpu_leaves_and_never_the_last_of_it(share, free, size):
    assert cache_bytes(MODEL, SLOT, share, free * GB, 80 * GB) == size


def test_a_cache_of_no_given_size_has_at_most_a_million_tokens():
    assert cache_bytes(MODEL, SLOT, 0.9, 170 * GB, 190 * GB) == CACHED * SLOT


@pytest.mark.parametrize(("total", "tokens"), [(80, 1000), (24, 1000), (12, 500), (6, 250)])
def test_a_pass_takes_an_eighth_of_the_gpu_at_most(total, tokens):
    assert pass_tokens(1000, MODEL, total * GB) == tokens


@pytest.mark.parametrize(("given", "size"), [({}, CPU_CACHE), ({"prefix_cache_gb": 0.01}, int(0.01 * 2**30))])
def test_on_a_cpu_a_cache_has_a_fixed_size(adapter, given, size):
    plans = []
    for options in (given, {"prefix_cache_gb": 0.0}):
        engine = load_model(ModelSpec(model=str(adapter)), EngineOptions(engine="torch", device="cpu", **options))
        plans.append(engine.description.memory)
        engine.close()
    slot = plans[1].slots // 1024
    assert plans[0].slots - plans[1].slots == size // slot * slot
