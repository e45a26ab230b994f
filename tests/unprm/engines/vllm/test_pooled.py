"""Step scores of what vLLM pools: one output, or those of a wrong and a right step."""

import math

import pytest

from unprm.engines.vllm.pooled import step_scores
from unprm.types import Encoded

ITEM = Encoded((5, 6, 7, 8), (1, 3))


@pytest.mark.parametrize("rows", [[[9.0], [0.0], [9.0], [math.log(3)]], [[0, 9], [2, 2], [0, 9], [1, 1 + math.log(3)]]])
def test_scores_are_read_at_the_steps(rows: list[list[float]]) -> None:
    assert step_scores(ITEM, rows) == pytest.approx((0.5, 0.75))
    assert step_scores(ITEM, rows[2:], 2) == pytest.approx((0.75,))


def test_a_row_is_needed_for_each_token() -> None:
    with pytest.raises(RuntimeError, match="3 rows for 4 tokens"):
        step_scores(ITEM, [[0.0]] * 3)
