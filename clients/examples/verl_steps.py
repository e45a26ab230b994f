"""Rewards of tokens for verl: an agent loop whose responses come with their step scores, each on its step's last token.

pip install -e . verl
export PYTHONPATH=clients/examples  # where clients/examples/verl_steps.py is
echo '[{name: steps, _target_: verl_steps.StepRewards}]' > steps.yaml
python -m verl.trainer.main_ppo algorithm.adv_estimator=gae \
    actor_rollout_ref.rollout.agent.agent_loop_config_path=steps.yaml \
    actor_rollout_ref.rollout.agent.default_agent_loop=steps …

A reward function of verl gives one number for a response. Advantages from the sum of its rewards (GRPO) are by the last
score if these are `differences`.
"""

from typing import Any

import torch
from verl.experimental.agent_loop import AgentLoopOutput, SingleTurnAgentLoop

from unprm_client.rewards import UNSCORABLE, loop_client, per_token, solution_of_tokens


class Rewarded(AgentLoopOutput):  # type: ignore[misc]
    """A response with a reward for each of its tokens."""

    token_rewards: list[float]

    def as_dict(self) -> dict[str, Any]:
        """As verl's trainer takes it."""
        made: dict[str, Any] = super().as_dict()
        made["rm_scores"] = torch.tensor(made.pop("token_rewards"), dtype=torch.float32)
        return made


class StepRewards(SingleTurnAgentLoop):  # type: ignore[misc]
    """Samples one response to the prompt, and has it scored; `differences`: as of `per_token`. A response that can't be
    scored gets nothing but 0."""

    def __init__(self, *arguments: Any, differences: bool = True, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.differences = differences

    async def run(self, sampling_params: dict[str, Any], **fields: Any) -> Rewarded:
        """`fields`: of the data's row; its `extra_info` has the problem as `question`."""
        output = await super().run(sampling_params, **fields)
        rewards = await self._rewards(str(fields["extra_info"]["question"]), output.response_ids)
        given = {name: getattr(output, name) for name in output.model_fields_set}
        # its reward is known, so that verl asks no other function for one
        return Rewarded(**given | {"token_rewards": rewards, "reward_score": sum(rewards)})

    async def _rewards(self, problem: str, ids: list[int]) -> list[float]:
        solution = solution_of_tokens(ids, self.tokenizer)
        try:
            (scored,) = (await loop_client().score_steps(problem, [solution])).solutions
        except UNSCORABLE:
            return [0.0] * len(ids)
        return per_token(scored, len(ids), differences=self.differences)
