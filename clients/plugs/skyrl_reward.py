"""SkyRL: an environment whose reward is that of a solution's steps."""

import skyrl_gym

skyrl_gym.register(id="prm", entry_point="skyrl_env:SolutionReward")
environment = skyrl_gym.make("prm")
problem = "Zoe has 23 coins. Zoe buys 4 bags with 15 coins in each bag. How many coins does Zoe have now?"
environment.init([{"role": "user", "content": problem}])
for product in (60, 50):
    solution = f"Step 1: 4 * 15 = {product}.\nStep 2: 23 + {product} = {23 + product}."
    print(environment.step(solution)["reward"])
