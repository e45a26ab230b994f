"""A remote reward model for OpenRLHF: it posts the policy's responses, whose step scores give the reward.

pip install -e '.[client]' fastapi uvicorn
python clients/examples/openrlhf.py --port 5000
python -m openrlhf.cli.train_ppo_ray --reward.remote_url http://127.0.0.1:5000/get_reward …

UNPRM_CLIENT_URL is the server's address, UNPRM_CLIENT_KEY its API key if it asks for one.
"""

import argparse
import asyncio
import operator
import os
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import uvicorn
from fastapi import FastAPI, HTTPException
from pydantic import BaseModel

from unprm_client import AsyncClient, ClientError
from unprm_client.errors import SolutionTooLong, TooManySteps

URL = os.environ.get("UNPRM_CLIENT_URL", "http://127.0.0.1:8000")
KEY = os.environ.get("UNPRM_CLIENT_KEY")
QUESTION = re.compile(r"<\|im_start\|>user\n(.*?)<\|im_end\|>", re.DOTALL)
"""Where the chat template of Qwen's models puts the problem; for others, change this and `ENDS`."""
ENDS = re.compile(r"(<\|im_end\|>|<\|endoftext\|>)\s*")
"""Special tokens to remove from a decoded response."""


class RewardRequest(BaseModel):
    """What OpenRLHF posts: `query` holds decoded prompts with their responses, special tokens included."""

    query: list[str]
    prompts: list[str]
    labels: list[Any] = []


class Rewarded(BaseModel):
    """What OpenRLHF reads: one number for each query; `extra_logs` go to its metrics."""

    rewards: list[float]
    scores: list[float]
    extra_logs: dict[str, list[float]]


def create(client: AsyncClient) -> FastAPI:
    """The app, which uses this client and closes it at the end."""

    @asynccontextmanager
    async def closing(_: FastAPI) -> AsyncIterator[None]:
        async with client:
            yield

    app = FastAPI(lifespan=closing)

    @app.post("/get_reward")
    async def get_reward(request: RewardRequest) -> Rewarded:
        """The lowest step score of each response; 0 for one that is empty or too long."""
        contained = map(operator.contains, request.query, request.prompts)
        if len(request.query) != len(request.prompts) or not all(contained):
            raise HTTPException(422, "each query must hold its prompt; were prompts cut because they are too long?")
        pairs = [_parts(query, prompt) for query, prompt in zip(request.query, request.prompts, strict=True)]
        try:
            scored = await asyncio.gather(*[_score(client, problem, response) for problem, response in pairs])
        except ClientError as error:  # OpenRLHF asks again
            raise HTTPException(503, str(error)) from error
        rewards = [min(scores, default=0.0) for scores in scored]
        steps = [float(len(scores)) for scores in scored]
        return Rewarded(rewards=rewards, scores=rewards, extra_logs={"scored_steps": steps})

    return app


async def _score(client: AsyncClient, problem: str, response: str) -> list[float]:
    """Step scores; an empty list if the response can't be scored."""
    if not response:
        return []
    try:
        answer = await client.score_steps(problem, [response])
    except (SolutionTooLong, TooManySteps):
        return []
    return answer.solutions[0].step_scores or []


def _parts(query: str, prompt: str) -> tuple[str, str]:
    """Problem and response. A decoded query may begin with a token that its prompt lacks."""
    questions = QUESTION.findall(prompt)
    problem = questions[-1] if questions else prompt
    return problem.strip(), ENDS.sub("", query.partition(prompt)[2]).strip()


def main() -> None:
    """Serves."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=5000)
    options = parser.parse_args()
    uvicorn.run(create(AsyncClient(URL, api_key=KEY)), host=options.host, port=options.port)


if __name__ == "__main__":
    main()
