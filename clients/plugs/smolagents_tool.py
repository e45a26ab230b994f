"""smolagents: a tool with which an agent checks its own solution."""

from smolagents import OpenAIServerModel, ToolCallingAgent, tool

from unprm_client import Client

client = Client("http://127.0.0.1:8000")


@tool
def first_wrong_step(problem: str, solution: str) -> str:
    """Finds the first wrong step of a solution.

    Args:
        problem: The problem as it was given.
        solution: The solution, a line for each step.
    """
    (scored,) = client.score_steps(problem, [solution]).solutions
    return "none" if scored.first_error is None else f"wrong: {scored.steps[scored.first_error]}"


model = OpenAIServerModel("reasoner", api_base="http://gpu-1:8000/v1", api_key="none")
agent = ToolCallingAgent(tools=[first_wrong_step], model=model, verbosity_level=0)
problem = "Zoe has 23 coins. Zoe buys 4 bags with 15 coins in each bag. How many coins does Zoe have now?"
print(agent.run(problem))
