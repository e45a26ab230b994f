"""Reward functions for verl and ms-swift: the lowest step score of a solution.

pip install -e .
python -m verl.trainer.main_ppo custom_reward_function.path=clients/examples/reward_functions.py …
swift rlhf --rlhf_type grpo --external_plugins clients/examples/reward_functions.py --reward_funcs prm …

verl's reward loop calls `compute_score`; newer versions name the option reward.custom_reward_function.path. Its batch
manager calls `compute_scores`: reward_model.reward_manager=batch custom_reward_function.name=compute_scores. ms-swift
finds `prm` among its rewards.
"""

import importlib.util
from collections.abc import Mapping, Sequence
from typing import Any

from unprm_client.rewards import loop_client, rewards, shared_client, step_scores

PROBLEM = "question"
"""The field of verl's `extra_info`, and ms-swift's column, with the problem's text."""


async def compute_score(
    data_source: str, solution_str: str, ground_truth: Any, extra_info: Mapping[str, Any] | None = None, **_: Any
) -> dict[str, float]:
    """The reward of one solution, for verl's reward loop; `scored_steps` goes to its metrics."""
    scores = await step_scores(loop_client(), _problem(extra_info), solution_str)
    return {"score": min(scores, default=0.0), "scored_steps": float(len(scores))}


def compute_scores(
    data_sources: Sequence[str],
    solution_strs: Sequence[str],
    ground_truths: Sequence[Any],
    extra_infos: Sequence[Mapping[str, Any] | None],
    **_: Any,
) -> list[float]:
    """The rewards of a batch, for verl's batch reward manager."""
    return rewards(shared_client(), list(map(_problem, extra_infos)), solution_strs)


class StepReward:
    """The rewards of completions, for ms-swift, whose columns come as lists."""

    def __init__(self, args: Any = None, **_: Any) -> None:
        self.args = args

    def __call__(self, completions: Sequence[str], **columns: Any) -> list[float]:
        """The reward of each completion."""
        return rewards(shared_client(), columns[PROBLEM], completions)


def _problem(extra_info: Mapping[str, Any] | None) -> str:
    fields = extra_info or {}
    if PROBLEM not in fields:
        raise KeyError(f"extra_info has the fields {', '.join(fields) or 'none'}: expected {PROBLEM!r}, the problem")
    return str(fields[PROBLEM])


if importlib.util.find_spec("swift") is not None:
    from swift.rewards import orms

    orms["prm"] = StepReward
