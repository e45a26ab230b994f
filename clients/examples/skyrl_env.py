"""Environments for SkyRL: a solution's reward is its lowest step score, given at its end or step by step.

pip install -e . skyrl-gym
export PYTHONPATH=clients/examples  # where clients/examples/skyrl_env.py is
skyrl_gym.register(id="prm", entry_point="skyrl_env:SolutionReward")
skyrl_gym.register(id="prm_steps", entry_point="skyrl_env:StepReward")

The trainer's entry point registers them; the data have a name as `env_class`.
"""

from typing import Any

from skyrl_gym.envs.base_text_env import BaseTextEnv, BaseTextEnvStepOutput

from unprm_client.rewards import problem_of, rewards, shared_client

STEP_END = "\n\n"
"""Where the policy stops after each step: `generator.sampling_params.stop`."""


class SolutionReward(BaseTextEnv):  # type: ignore[misc]
    """One solution to the problem in the prompt's last user message. SkyRL makes one for each solution."""

    def __init__(self, env_config: Any = None, extras: Any = None) -> None:
        super().__init__()
        self.problem = ""

    def init(self, prompt: list[dict[str, str]]) -> tuple[list[dict[str, str]], dict[str, Any]]:
        """The prompt as it is. Raises `ValueError` if it has no message of a user."""
        self.problem = problem_of(prompt)
        return prompt, {}

    def step(self, action: str) -> BaseTextEnvStepOutput:
        """The reward of the solution, after which the episode is over."""
        (reward,) = rewards(shared_client(), [self.problem], [action])
        return BaseTextEnvStepOutput(observations=[], reward=reward, done=True, metadata={})


class StepReward(SolutionReward):
    """A reward after each step: a turn of the policy is a step, and one that doesn't end at `STEP_END` is the last.

    The first step gets its score; a later one what it takes from the lowest score so far, 0 or less. So the rewards of
    a solution sum to its lowest step score. A blank turn does not count. Needs
    `generator.use_conversation_multi_turn=false`.
    """

    def __init__(self, env_config: Any = None, extras: Any = None) -> None:
        super().__init__()
        self.max_turns: int = (extras or {}).get("max_turns", 1)
        self.steps: list[str] = []
        self.lowest = 0.0

    def step(self, action: str) -> BaseTextEnvStepOutput:
        """The reward of the solution's next step; the episode is over after the last, or after `max_turns`."""
        self.turns += 1
        if action.strip():
            self.steps.append(action.strip())
        (lowest,) = rewards(shared_client(), [self.problem], [self.steps]) if self.steps else [0.0]
        reward, self.lowest = lowest - self.lowest, lowest
        done = not action.endswith(STEP_END) or self.turns == self.max_turns
        return BaseTextEnvStepOutput(observations=[], reward=reward, done=done, metadata={})
