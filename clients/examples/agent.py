"""An agent that uses only OpenAI's API: each of its answers is elected by a vote.

pip install openai-agents
unprm serve --upstream-url http://gpu-1:8000/v1
python clients/examples/agent.py --model Qwen/Qwen2.5-Math-7B-Instruct
"""

import argparse
import os

from agents import Agent, OpenAIChatCompletionsModel, Runner, set_tracing_disabled
from openai import AsyncOpenAI

URL = os.environ.get("UNPRM_CLIENT_URL", "http://127.0.0.1:8000")
KEY = os.environ.get("UNPRM_CLIENT_KEY", "none")
QUESTION = "A farm gets 6 crates with 39 eggs in each crate, and has 166 eggs already. How many eggs are there?"
INSTRUCTIONS = "Solve the problem step by step, a blank line between steps, and put the answer in \\boxed{}."


def main() -> None:
    """Asks one question."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("question", nargs="?", default=QUESTION)
    parser.add_argument("--model", required=True, help="name of the upstream's model")
    options = parser.parse_args()
    set_tracing_disabled(True)  # traces would go to OpenAI
    client = AsyncOpenAI(base_url=f"{URL}/v1", api_key=KEY)
    model = OpenAIChatCompletionsModel(model=options.model, openai_client=client)
    agent = Agent(name="Mathematician", instructions=INSTRUCTIONS, model=model)
    print(Runner.run_sync(agent, options.question).final_output)


if __name__ == "__main__":
    main()
