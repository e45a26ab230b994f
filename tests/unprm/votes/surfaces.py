"""What every surface says of the vote `passing`, as JSON: a program, which a test runs with that vote's directory."""

import asyncio
import json
import sys
from typing import Any

import unprm.votes

GIVEN = [
    {"steps": ["s"], "answer": answer, "step_scores": [score]}
    for answer, score in (("1", 0.6), ("1", 0.6), ("1", 0.6), ("2", 0.9), ("2", 0.9))
]
"""Answer 1 wins with a pass mark of 0.5, 2 with one of 0.8."""
TEXTS = ["It is \\boxed{2}.", "It is \\boxed{1}.", "So it is \\boxed{1}."]
REQUEST = {"problem": "How many?", "solutions": GIVEN}


def server() -> dict[str, Any]:
    """Over HTTP, and the clients that ask there."""
    from typer.testing import CliRunner

    from tests.server.harness import serving
    from unprm_client import AsyncClient, Client
    from unprm_client.__main__ import app
    from unprm_client.mcp import create

    with serving(gateway_strategy="passing") as running, Client(running.url) as client:
        tools = create(AsyncClient(running.url))
        (tool,) = [tool for tool in asyncio.run(tools.list_tools()) if tool.name == "vote"]
        arguments = {"problem": "How many?", "solutions": TEXTS, "strategy": "passing", "pass_mark": 0.0}
        options = ["vote", "--url", running.url, "--strategy", "passing", "--pass-mark", "0.8"]
        return {
            "default": running.post("/vote/passing", REQUEST).json(),
            "strict": running.post("/vote/passing", REQUEST | {"pass_mark": 0.8}).json(),
            "refused": running.post("/vote/passing", REQUEST | {"pass_mark": 2}).json(),
            "compared": running.post("/vote/compare", REQUEST | {"pass_mark": 0.8}).json()["strategies"],
            "unknown": running.post("/vote/another", REQUEST).json()["detail"],
            "openapi": running.get("/openapi.json").json(),
            "page": running.get("/page/strategies.json").json(),
            "client": client.vote(None, GIVEN, "passing", pass_mark=0.8).answer,
            "tool": tool.input_schema["properties"],
            "called": asyncio.run(tools.call_tool("vote", arguments)).structured_content,
            "command": CliRunner().invoke(app, options, json.dumps(REQUEST)).output,
            "help": CliRunner().invoke(app, ["vote", "--help"], env={"COLUMNS": "200", "NO_COLOR": "1"}).output,
        }


def elsewhere() -> dict[str, Any]:
    """The gateway's names of models, the evaluation and the library."""
    from research import crossfit
    from server.routes.gateway.schema import NAMED
    from training.evaluate import best_of_n
    from training.evaluate.judging import JudgedCandidates

    scores = tuple((each["step_scores"][0],) for each in GIVEN)
    right = tuple(each["answer"] == "2" for each in GIVEN)
    classes = tuple(int(each["answer"]) for each in GIVEN)
    judged = [JudgedCandidates(name, classes, right, tuple(score for (score,) in scores), scores) for name in "ab"]
    named = NAMED.fullmatch("passing-4@m")
    return {
        "named": None if named is None else named.groups(),
        "best_of_n": best_of_n.markdown(best_of_n.results(judged)),
        "chosen": crossfit.measure(judged)["passing"].best,
        "library": unprm.vote(None, TEXTS, "passing", step_scores=[[0.9], [0.6], [0.7]], pass_mark=0.8).answer,
    }


if __name__ == "__main__":
    unprm.votes.__path__.append(sys.argv[1])
    json.dump(server() | elsewhere(), sys.stdout)
