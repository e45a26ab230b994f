"""An environment for SkyRL: a solution's reward is its lowest step score.

pip install -e '.[client]' skyrl-gym
export PYTHONPATH=clients/examples  # where clients/examples/skyrl_env.py is
skyrl_gym.register(id="prm", entry_point="skyrl_env:StepReward")

The trainer's entry point registers it; the data have its name as `env_class`. UNPRM_CLIENT_URL is the server's address,
UNPRM_CLIENT_KEY its API key if the server asks for one.
"""

import os
from functools import cache
from typing import Any

from skyrl_gym.envs.base_text_env import BaseTextEnv, BaseTextEnvStepOutput

from unprm_client import Client
from unprm_client.rewards import rewards

URL = os.environ.get("UNPRM_CLIENT_URL", "http://127.0.0.1:8000")
KEY = os.environ.get("UNPRM_CLIENT_KEY")


class StepReward(BaseTextEnv):  # type: ignore[misc]
    """One solution to the problem in the prompt's last user message. SkyRL makes one for each solution."""

    def __init__(self, env_config: Any = None, extras: Any = None) -> None:
        super().__init__()
        self.problem = ""

    def init(self, prompt: list[dict[str, str]]) -> tuple[list[dict[str, str]], dict[str, Any]]:
        """The prompt as it is. Raises `ValueError` if it has no message of a user."""
        questions = [message["content"] for message in prompt if message["role"] == "user"]
        if not questions:
            raise ValueError("the prompt has no message of a user, which would be the problem")
        self.problem = questions[-1]
        return prompt, {}

    def step(self, action: str) -> BaseTextEnvStepOutput:
        """The reward of the solution, after which the episode is over."""
        (reward,) = rewards(_client(), [self.problem], [action])
        return BaseTextEnvStepOutput(observations=[], reward=reward, done=True, metadata={})


@cache
def _client() -> Client:
    return Client(URL, api_key=KEY)
