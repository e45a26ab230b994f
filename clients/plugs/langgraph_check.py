"""LangGraph: a node that checks the last solution and sends it back with its wrong step, at most twice."""

from typing import TypedDict

from langgraph.graph import END, START, StateGraph
from openai import OpenAI

from unprm_client import Client

client, llm = Client("http://127.0.0.1:8000"), OpenAI(base_url="http://gpu-1:8000/v1", api_key="none")


class State(TypedDict, total=False):
    """What passes between the nodes."""

    problem: str
    solution: str
    wrong: str | None
    tries: int


def solve(state: State) -> State:
    hint = f"\n\nThis step was wrong: {state['wrong']}" if state.get("wrong") else ""
    messages = [{"role": "user", "content": state["problem"] + hint}]
    answer = llm.chat.completions.create(model="reasoner", messages=messages).choices[0].message.content
    return {"solution": answer, "tries": state.get("tries", 0) + 1}


def check(state: State) -> State:
    (scored,) = client.score_steps(state["problem"], [state["solution"]]).solutions
    return {"wrong": None if scored.first_error is None else scored.steps[scored.first_error]}


graph = StateGraph(State).add_node("solve", solve).add_node("check", check)
graph.add_edge(START, "solve").add_edge("solve", "check")
graph.add_conditional_edges("check", lambda state: "solve" if state["wrong"] and state["tries"] < 3 else END)
problem = "Zoe has 23 coins. Zoe buys 4 bags with 15 coins in each bag. How many coins does Zoe have now?"
done = graph.compile().invoke({"problem": problem})
print(done["tries"], done["wrong"], done["solution"].splitlines()[-1])
