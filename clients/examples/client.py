"""The client for Python, plain and with asyncio.

pip install -e .
python clients/examples/client.py
"""

import asyncio
from typing import Any

from unprm_client import AsyncClient, Client, ClientError

PROBLEM = "Zoe has 23 coins. Zoe buys 4 bags with 15 coins in each bag. How many coins does Zoe have now?"
SOLUTIONS = [
    "Step 1: 4 * 15 = 60.\nStep 2: 23 + 60 = 83. The answer is \\boxed{83}.",
    ["Step 1: 4 * 15 = 50.", "Step 2: 23 + 50 = 73. The answer is \\boxed{73}."],
    "Step 1: 15 * 4 = 60.\nStep 2: 60 + 23 = 83. The answer is \\boxed{83}.",
]


def one_at_a_time() -> None:
    """Shows where each solution goes wrong, and the elected answer."""
    with Client() as client:
        for solution in client.score_steps(PROBLEM, SOLUTIONS).solutions:
            print(f"answer {solution.answer}, reward {solution.reward:.3f}, first error {solution.first_error}")
        vote = client.vote(problem=PROBLEM, solutions=SOLUTIONS)
        print(f"elected: {vote.answer}, by {vote.strategy}, decided by {vote.decided_by}")


async def many_at_a_time() -> None:
    """Many votes: results and errors come in the order of the requests."""
    requests: list[dict[str, Any]] = [
        {"problem": PROBLEM, "solutions": SOLUTIONS},
        {"problem": PROBLEM, "solutions": ["I can't tell."]},
    ]
    async with AsyncClient() as client:
        async for outcome in client.compare_all(requests, concurrency=8):
            if isinstance(outcome, ClientError):
                print(f"refused: {outcome}")
            else:
                print({strategy: vote.answer for strategy, vote in outcome.strategies.items()})


if __name__ == "__main__":
    one_at_a_time()
    asyncio.run(many_at_a_time())
