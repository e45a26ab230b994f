"""A PRM in the shape of Qwen2.5-Math-7B with random weights on a GPU: 64 candidates of one question, against the
card's measured peak and against padded batches. Needs CUDA."""

import random
from collections.abc import Callable
from contextlib import closing

import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

from benchmarks import models
from benchmarks.baselines import Plain, padded
from benchmarks.models import SEVEN_BILLION
from benchmarks.timing import Comparison, median, timed
from unprm.engines.torch.engine import TorchEngine
from unprm.engines.torch.readers import AtPositions
from unprm.formats.family import Verdicts
from unprm.models.options import EngineOptions
from unprm.types import Encoded, ModelDescription

CANDIDATES, LENGTH, ROUNDS, MATRIX = 64, 500, 5, 8192


def comparisons() -> list[Comparison]:
    """Measures in bf16."""
    if not torch.cuda.is_available():
        raise SystemExit("this benchmark needs a GPU that PyTorch sees")
    return measure(SEVEN_BILLION, torch.device("cuda"), MATRIX)


def measure(shape: dict[str, int], device: torch.device, matrix: int) -> list[Comparison]:
    """Measures a model of this shape on a device; the device's peak is measured with a product of two square matrices
    of size `matrix`."""
    with device:
        network = Qwen2ForCausalLM._from_config(Qwen2Config(**shape), dtype=torch.bfloat16).eval()
    plain = Plain(network, Verdicts(11, 12))
    plain.head.to(device)
    batches = [_vote(random.Random(seed), shape["vocab_size"]) for seed in range(ROUNDS + 1)]
    padded(plain, batches[0][:8])
    baseline = median(lambda items: _synchronised(device, padded, plain, items), batches[1:])
    expected = padded(plain, batches[0])
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
    # from here on the network uses our attention
    about = ModelDescription("7b", "", "", None, None, "torch", str(device), "bfloat16", 4096, "", None, False)  # type: ignore[arg-type]
    engine = TorchEngine(AtPositions(plain.decoder, plain.head, device), None, about, EngineOptions().batch_tokens, 0)  # type: ignore[arg-type]
    with closing(engine):
        result = engine.score(batches[0])
        seconds = median(engine.score, batches[1:])
    computed = models.distinct(batches[0])
    close = models.apart(result.scores, expected)
    what = (
        f"{CANDIDATES} candidates of {LENGTH} tokens, {sum(result.computed) / computed:.3f} × their distinct tokens run"
    )
    peak = _peak(device, matrix) / (2 * plain.weights)
    rows = [
        Comparison(f"{what}, scores within {close:.0e}", seconds, "padded batches of 8", baseline, ROUNDS),
        Comparison("tokens computed", computed / seconds, "the matrix product's peak", peak, ROUNDS, "/s", 1.0),
    ]
    if device.type == "cuda":
        weights = sum(parameter.numel() * parameter.element_size() for parameter in network.parameters())
        rows.append(Comparison("memory", torch.cuda.max_memory_allocated(), "the weights", weights, unit="B"))
    return rows


def _vote(rng: random.Random, vocabulary: int) -> list[Encoded]:
    question = rng.choices(range(vocabulary), k=models.QUESTION)
    return [models.scored(question + rng.choices(range(vocabulary), k=LENGTH)) for _ in range(CANDIDATES)]


def _peak(device: torch.device, size: int) -> float:
    """Operations per second of a product of square matrices in bf16; each multiplication counts as two operations."""
    first, second = (torch.randn(size, size, device=device, dtype=torch.bfloat16) for _ in range(2))
    taken = [timed(_synchronised, device, torch.matmul, first, second) for _ in range(10)]
    return 2 * size**3 / min(taken)


def _synchronised(device: torch.device, work: Callable[..., object], *arguments: object) -> None:
    """Runs `work` and waits until a GPU has finished it."""
    work(*arguments)
    if device.type == "cuda":
        torch.cuda.synchronize(device)
