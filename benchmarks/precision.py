"""Lower precision: speed on 64 candidates of one question, against the plain loop in fp32, and the embedded model's
step AUROC, against fp32."""

import random
from contextlib import closing

from sklearn.metrics import roc_auc_score

from benchmarks import models
from benchmarks.baselines import loaded, plain_loop
from benchmarks.timing import Comparison, compare
from training.mini.slips import Author
from unprm import mini
from unprm.mini.checker import labels
from unprm.mini.storyteller import DEMANDING, generate
from unprm.models.load import load_engine
from unprm.models.options import Dtype
from unprm.types import Encoded

HERE: list[Dtype] = ["bfloat16", "int8"]
ROUNDS, SOLUTIONS = 3, 500


def run() -> list[Comparison]:
    """Measures speed and AUROC. bf16 is fast on processors that compute in it, int8 on any; float8, for GPUs, is
    measured by AUROC only."""
    candidates = models.vote(random.Random(0))
    fast = [_speed(dtype, candidates) for dtype in HERE]
    auroc = {dtype: _auroc(dtype) for dtype in ("float32", *HERE, "float8")}
    what = f"AUROC of {mini.NAME} over the steps of {SOLUTIONS} solutions"
    return [
        *fast,
        *(
            Comparison(f"{what}, {dtype}", area, "float32", auroc["float32"], 1, "AUROC")
            for dtype, area in auroc.items()
            if dtype != "float32"
        ),
    ]


def _speed(dtype: Dtype, candidates: list[Encoded]) -> Comparison:
    with loaded(dtype=dtype) as (engine, plain):
        engine.score(candidates)
        plain_loop(plain, candidates[:4])
        return compare(
            f"64 candidates of one question, {dtype}",
            lambda: engine.score(candidates),
            "one solution at a time, all logits, fp32",
            lambda: plain_loop(plain, candidates),
            ROUNDS,
        )


def _auroc(dtype: Dtype) -> float:
    rng = random.Random(0)
    problems = [generate(rng, DEMANDING) for _ in range(SOLUTIONS)]
    solutions = [Author(rng, 1.0).solve(problem) for problem in problems]
    truth = [label for pair in zip(problems, solutions, strict=True) for label in labels(*pair)]
    with closing(load_engine(mini.NAME, device="cpu", dtype=dtype)) as engine:
        items = [engine.format.encode(problem.text, steps) for problem, steps in zip(problems, solutions, strict=True)]
        scores = [score for values in engine.score(items).scores for score in values]
    return float(roc_auc_score(truth, scores))
