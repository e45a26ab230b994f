"""PydanticAI: an output validator that sends a solution back with its wrong step."""

from pydantic_ai import Agent, ModelRetry, RunContext
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

from unprm_client import AsyncClient

client = AsyncClient("http://127.0.0.1:8000")
provider = OpenAIProvider(base_url="http://gpu-1:8000/v1", api_key="none")
agent = Agent(OpenAIChatModel("reasoner", provider=provider), retries=3)


@agent.output_validator
async def every_step_holds(context: RunContext, solution: str) -> str:
    (scored,) = (await client.score_steps(context.prompt, [solution])).solutions
    if scored.first_error is not None:
        raise ModelRetry(f"This step is wrong: {scored.steps[scored.first_error]}")
    return solution


problem = "Zoe has 23 coins. Zoe buys 4 bags with 15 coins in each bag. How many coins does Zoe have now?"
print(agent.run_sync(problem).output)
