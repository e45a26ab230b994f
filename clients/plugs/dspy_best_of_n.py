"""DSPy: the lowest step score of a prediction's reasoning as the reward of `BestOfN`."""

import dspy

from unprm_client import Client
from unprm_client.rewards import rewards

client = Client("http://127.0.0.1:8000")
dspy.configure(lm=dspy.LM("openai/reasoner", api_base="http://gpu-1:8000/v1", api_key="none", cache=False))


def lowest_step_score(arguments, prediction):
    return rewards(client, [arguments["question"]], [prediction.reasoning])[0]


best = dspy.BestOfN(dspy.ChainOfThought("question -> answer"), N=4, reward_fn=lowest_step_score, threshold=0.5)
problem = "Zoe has 23 coins. Zoe buys 4 bags with 15 coins in each bag. How many coins does Zoe have now?"
print(best(question=problem).answer)
