"""A reward for environments of verifiers: the mean score of an agent's steps, and each step's score as a metric.

pip install -e . verifiers

In the configuration of a run:

[env.taskset.task.rewards.steps]
fn = "clients/examples/verifiers_steps.py:reward"
[env.taskset.task.metrics.step_scores]
fn = "clients/examples/verifiers_steps.py:step_scores"
"""

from statistics import fmean

from verifiers.v1 import Trace
from verifiers.v1.dialects.chat import message_to_wire

from unprm_client.rewards import UNSCORABLE, loop_client


async def reward(trace: Trace) -> float:
    """The mean score of the agent's steps, in [0, 1]; 0 if they can't be scored."""
    scores = await step_scores(trace)
    return fmean(scores.values()) if scores else 0.0


async def step_scores(trace: Trace) -> dict[str, float]:
    """The score of each step, by the index of its message: `step_2`; nothing if they can't be scored."""
    messages = [message_to_wire(message) for message in trace.messages]
    tools = [tool.model_dump(exclude_none=True) for tool in trace.tools]
    try:
        scored = await loop_client().score_steps(trajectories=[{"messages": messages}], tools=tools)
    except UNSCORABLE:
        return {}
    scores = scored.solutions[0].message_scores or {}
    return {f"step_{index}": score for index, score in scores.items() if score is not None}
