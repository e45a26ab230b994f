"""Lower precision: speed on 64 candidates of one question, against the plain loop in fp32, and the embedded model's
step AUROC, against fp32."""

import random
from contextlib import closing

from sklearn.metrics import roc_auc_score

from benchmarks import models, queries
from benchmarks.baselines import loaded, plain_loop
from benchmarks.timing import Comparison, compare
from unprm import mini
from unprm.models.load import load_engine
from unprm.models.options import Dtype
from unprm.types import Encoded

HERE: list[Dtype] = ["bfloat16", "int8"]
ROUNDS, SOLUTIONS = 3, 500


def comparisons() -> list[Comparison]:
    """Measures speed and AUROC. bf16 is fast on processors that compute in it, int8 on any."""
    candidates = models.vote(random.Random(0))
    rows = [_speed(dtype, candidates) for dtype in HERE]
    what, expected = f"AUROC of {mini.NAME} over the steps of {SOLUTIONS} solutions", _auroc("float32")
    return rows + [Comparison(f"{what}, {dtype}", _auroc(dtype), "float32", expected, unit="AUROC") for dtype in HERE]


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
    solutions = queries.labelled(0, SOLUTIONS)
    truth = [label for solution in solutions for label in solution.labels]
    with closing(load_engine(mini.NAME, device="cpu", dtype=dtype)) as engine:
        items = [engine.format.encode(solution.problem, solution.steps) for solution in solutions]
        scores = [score for each in engine.score(items) for score in each.values]
    return float(roc_auc_score(truth, scores))
