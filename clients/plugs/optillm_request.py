"""OptiLLM: a request to its plugin, `clients/examples/optillm_unprm.py`."""

from openai import OpenAI

llm = OpenAI(base_url="http://127.0.0.1:8080/v1", api_key="none")
problem = "Zoe has 23 coins. Zoe buys 4 bags with 15 coins in each bag. How many coins does Zoe have now?"
answer = llm.chat.completions.create(
    model="unprm-reasoner",
    messages=[{"role": "user", "content": problem}],
    extra_body={"unprm_strategy": "prm", "unprm_candidates": 3},
)
print(answer.choices[0].message.content)
