"""Remote reward models for OpenRLHF and slime: they post the policy's responses, whose step scores give the reward.

pip install -e . fastapi uvicorn
python clients/examples/reward_server.py --port 5000
python -m openrlhf.cli.train_ppo_ray --reward.remote_url http://127.0.0.1:5000/get_reward …
python train.py --rm-type remote_rm --rm-url http://127.0.0.1:5000/slime …
"""

import asyncio
import operator
import re
import sys
from typing import Annotated, Any

import uvicorn
from fastapi import FastAPI, HTTPException
from pydantic import BaseModel, BeforeValidator

from unprm_client import ClientError
from unprm_client.rewards import loop_client, problem_of, step_scores

QUESTION = re.compile(r"<\|im_start\|>user\n(.*?)<\|im_end\|>", re.DOTALL)
"""Where the chat template of Qwen's models puts the problem; for others, change this and `ENDS`."""
ENDS = re.compile(r"(<\|im_end\|>|<\|endoftext\|>)\s*")
"""Special tokens to remove from a decoded response."""
app = FastAPI()


def problem(prompt: str | list[dict[str, Any]]) -> str:
    """The last message of a user; a text without one is the problem itself. Raises `ValueError`."""
    if isinstance(prompt, list):
        return problem_of(prompt)
    return str([prompt, *QUESTION.findall(prompt)][-1]).strip()


class OpenRLHFRequest(BaseModel):
    """What OpenRLHF posts: `query` holds decoded prompts with their responses, special tokens included."""

    query: list[str]
    prompts: list[str]


class SlimeRequest(BaseModel):
    """What slime posts for each sample: `prompt` is the chat template's text, or the messages without one."""

    prompt: Annotated[str, BeforeValidator(problem)]
    response: str


@app.post("/get_reward")
async def get_reward(request: OpenRLHFRequest) -> dict[str, Any]:
    """The lowest step score of each response, 0 for one that can't be scored; `extra_logs` go to its metrics."""
    contained = map(operator.contains, request.query, request.prompts)
    if len(request.query) != len(request.prompts) or not all(contained):
        raise HTTPException(422, "each query must contain its prompt; were long prompts truncated?")
    # a decoded query may begin with a token that its prompt lacks
    responses = [query.partition(prompt)[2] for query, prompt in zip(request.query, request.prompts, strict=True)]
    scored = await asyncio.gather(*map(_score, map(problem, request.prompts), responses))
    rewards = [min(scores, default=0.0) for scores in scored]
    return {
        "rewards": rewards,
        "scores": rewards,
        "extra_logs": {"scored_steps": [float(len(solution)) for solution in scored]},
    }


@app.post("/slime")
async def slime(request: SlimeRequest) -> float:
    """The lowest step score; 0 for a response that can't be scored."""
    return min(await _score(request.prompt, request.response), default=0.0)


async def _score(problem: str, response: str) -> list[float]:
    try:
        return await step_scores(loop_client(), problem, ENDS.sub("", response).strip())
    except ClientError as error:  # the trainer asks again
        raise HTTPException(503, str(error)) from error


if __name__ == "__main__":
    uvicorn.main(["reward_server:app", "--log-level", "warning", *sys.argv[1:]])
