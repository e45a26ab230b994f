"""The programs of docs/plugs.md, run by an environment with the packages that they plug into."""

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.adder import adding
from tests.clients.programs import environment, listening
from tests.fake_engine import FakeEngine
from tests.fakes import Upstream, openai_server, upstream
from tests.pages import PLUGS_PROGRAMS
from tests.server.harness import Running, embedded, serving
from tests.support import PATIENCE, ROOT, TEST_DATA
from unprm.answers.equivalence import Equivalence
from unprm.answers.extraction import extract

PYTHON = ROOT / ".venv-plugs" / "bin" / "python"
RIGHT = "Step 1: 4 * 15 = 60.\nStep 2: 23 + 60 = 83. The answer is \\boxed{83}."
WRONG = "Step 1: 4 * 15 = 50.\nStep 2: 23 + 50 = 73. The answer is \\boxed{73}."
EPOCHS = 6

pytestmark = pytest.mark.skipif(not PYTHON.exists(), reason="`make test-plugs` makes the environment")


PROBLEM = "Zoe has 23 coins. Zoe buys 4 bags with 15 coins in each bag. How many coins does Zoe have now?"


def here(place: Path, server: Running) -> dict[str, str]:
    """The environment of programs that import the examples and use this server."""
    path = f"{ROOT}:{ROOT / 'clients'}:{ROOT / 'clients' / 'examples'}"
    return {"PYTHONPATH": path, "HOME": str(place), "UNPRM_CLIENT_URL": server.url}


def ran(program: str, place: Path, server: Running, reasoner: Upstream | None = None, **variables: str) -> str:
    """What the program prints, run in the directory `place` with the addresses of these servers."""
    program = program.replace("http://127.0.0.1:8000", server.url)
    if reasoner is not None:
        program = program.replace("http://gpu-1:8000/v1", reasoner.url)
    (place / "program.py").write_text(program, "utf-8")  # smolagents reads the source of its tools
    completed = subprocess.run(
        [PYTHON, "program.py"],
        cwd=place,
        env=environment(**here(place, server), **variables),
        capture_output=True,
        text=True,
        timeout=2 * PATIENCE,
        check=False,
    )
    assert completed.returncode == 0, completed.stdout + completed.stderr
    return completed.stdout


def recorded() -> list[dict[str, Any]]:
    """Ten questions of MATH-500 with recorded samples."""
    lines = (TEST_DATA / "votes" / "math500_pool_rlhflow.jsonl").read_text("utf-8").splitlines()[:10]
    rows = [json.loads(line) for line in lines]
    return [
        {
            "problem": row["problem"],
            "answer": row["answer"],
            "samples": ["\n\n".join(candidate["steps"]) for candidate in row["candidates"][:EPOCHS]],
        }
        for row in rows
    ]


def elected(server: Running, strategy: str, problem: str, samples: Sequence[str]) -> str:
    ordered = sorted(samples)
    vote = server.post(f"/vote/{strategy}", {"problem": problem, "solutions": ordered}).json()
    return ordered[vote["solution_index"]]


def test_inspect(tmp_path: Path) -> None:
    """The votes' accuracies are those of the server's votes, and the same when epochs end in the other order."""
    rows = recorded()
    (tmp_path / "questions.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    with serving() as server:
        printed = []
        for order in (1, -1):
            texts = {row["problem"]: row["samples"][::order] for row in rows}
            with upstream(for_problem=texts) as reasoner:
                printed.append(ran(PLUGS_PROGRAMS["Inspect"], tmp_path, server, reasoner, LAB_API_KEY="none"))
        accuracies = {}
        equivalence = Equivalence()
        for strategy in ("majority", "wrf", "prm"):
            answers = [extract(elected(server, strategy, row["problem"], row["samples"])) for row in rows]
            right = [equivalence.equal(answer or "", row["answer"]) for answer, row in zip(answers, rows, strict=True)]
            accuracies[strategy] = sum(right) / len(right)
    assert printed[0] == printed[1] == "".join(f"elected_by_{name} {value}\n" for name, value in accuracies.items())
    assert len(set(accuracies.values())) > 1


def test_lm_evaluation_harness(tmp_path: Path) -> None:
    """The filter as the harness builds and applies it, from the names in a task's YAML."""
    rows = recorded()
    (tmp_path / "rows.json").write_text(json.dumps(rows), "utf-8")
    use = """
import json
from lm_eval.api.instance import Instance
from lm_eval.filters import build_filter_ensemble

rows = json.load(open("rows.json"))
instances = [Instance("generate_until", {"question": row["problem"]}, (), place) for place, row in enumerate(rows)]
for instance, row in zip(instances, rows):
    instance.resps = row["samples"]
build_filter_ensemble("wrf", [["elected", {"strategy": "wrf"}], ["take_first", None]]).apply(instances)
print(json.dumps([instance.filtered_resps["wrf"] for instance in instances]))
"""
    with serving() as server:
        kept = json.loads(ran(PLUGS_PROGRAMS["lm-evaluation-harness"] + use, tmp_path, server).splitlines()[-1])
        assert kept == [elected(server, "wrf", row["problem"], row["samples"]) for row in rows]
    assert any(text != row["samples"][0] for text, row in zip(kept, rows, strict=True))


def test_skyrl(tmp_path: Path) -> None:
    """The rewards are the server's, also of an environment that is made as SkyRL's generator makes it."""
    use = """
again = skyrl_gym.make("prm", env_config={}, extras={"max_turns": 1})
prompt = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": problem}]
assert again.init(prompt) == (prompt, {})
print(again.step(" "))
try:
    again.init(prompt[:1])
except ValueError as error:
    print(error)
"""
    with serving(embedded()) as server:
        right, wrong, blank, error = ran(PLUGS_PROGRAMS["SkyRL"] + use, tmp_path, server).splitlines()
        solutions = [f"Step 1: 4 * 15 = {each}.\nStep 2: 23 + {each} = {23 + each}." for each in (60, 50)]
        scored = server.post("/score_steps", {"problem": PROBLEM, "solutions": solutions}).json()["solutions"]
    assert [float(right), float(wrong)] == [solution["reward"] for solution in scored]
    assert float(right) > 0.5 > float(wrong)
    assert blank == "{'observations': [], 'reward': 0.0, 'done': True, 'metadata': {}}"
    assert error == "the prompt has no message of a user, which would be the problem"


def test_optillm(tmp_path: Path) -> None:
    """OptiLLM's own server finds the plugin, and answers with the elected one of three candidates."""
    plugins = tmp_path / "optillm" / "plugins"
    plugins.mkdir(parents=True)
    (plugins / "unprm_plugin.py").write_text(PLUGS_PROGRAMS["OptiLLM"], "utf-8")
    start = ("-c", "import os, sys; os.chdir(sys.argv.pop(1)); import optillm; optillm.main()", str(tmp_path))
    with serving(embedded()) as server, upstream(WRONG, RIGHT, WRONG) as reasoner:
        more = {**here(tmp_path, server), "OPENAI_API_KEY": "none"}
        with listening(*start, "--base-url", reasoner.url, program=str(PYTHON), **more) as url:
            body = {
                "model": "unprm-reasoner",
                "messages": [{"role": "user", "content": PROBLEM}],
                "unprm_strategy": "prm",
                "unprm_candidates": 3,
            }
            answer = httpx.post(f"{url}/v1/chat/completions", json=body, timeout=PATIENCE).json()
    assert answer["choices"][0]["message"]["content"] == RIGHT
    (sampled,) = reasoner.bodies
    assert sampled == {"model": "reasoner", "messages": [{"role": "user", "content": PROBLEM}], "n": 3}


def call(name: str, number: int, **arguments: str) -> dict[str, Any]:
    """A message that calls a tool."""
    function = {"name": name, "arguments": json.dumps(arguments)}
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": f"c{number}", "type": "function", "function": function}],
    }


def dspy_answer(solution: str, answer: str) -> str:
    return f"[[ ## reasoning ## ]]\n{solution}\n\n[[ ## answer ## ]]\n{answer}\n\n[[ ## completed ## ]]"


CHECKED = [
    call("first_wrong_step", 1, problem="p", solution=WRONG),
    call("final_answer", 2, answer="83"),
]
ADVICE = (
    "[[ ## discussion ## ]]\nA product is wrong.\n\n"
    '[[ ## advice ## ]]\n{"predict": "Multiply again."}\n\n[[ ## completed ## ]]'
)
"""What a model says of the first attempt, as `Refine` asks it."""
AGENTS: list[tuple[str, list[Any], str, int]] = [
    ("LangGraph", [WRONG, RIGHT], f"2 None {RIGHT.splitlines()[-1]}\n", 2),
    ("DSPy", [dspy_answer(WRONG, "73"), dspy_answer(RIGHT, "83")], "83\n", 2),
    ("DSPy's Refine", [dspy_answer(WRONG, "73"), ADVICE, dspy_answer(RIGHT, "83")], "83\n", 3),
    ("smolagents", CHECKED, "83\n", 2),
    ("PydanticAI", [WRONG, WRONG, RIGHT], f"{RIGHT}\n", 3),
]


@pytest.mark.parametrize(("framework", "texts", "output", "calls"), AGENTS, ids=[each[0] for each in AGENTS])
def test_an_agent(framework: str, texts: list[Any], output: str, calls: int, tmp_path: Path) -> None:
    """The model's first solution is wrong; the server's scores bring the framework to ask again."""
    program = PLUGS_PROGRAMS[framework.removesuffix("'s Refine")]
    if framework.endswith("Refine"):
        program = program.replace("BestOfN", "Refine")
    with serving(embedded()) as server, upstream(*texts) as reasoner:
        assert ran(program, tmp_path, server, reasoner) == output
    assert len(reasoner.bodies) == calls
    # what the model is told of its first attempt; those of `BestOfN` do not know of each other
    expected = {"DSPy": "", "DSPy's Refine": "Multiply again."}.get(framework, "4 * 15 = 50")
    assert expected in json.dumps(reasoner.bodies[-1]["messages"][-1])


@pytest.mark.parametrize("whole", [False, True])
def test_anthropic_s_client(whole: bool, tmp_path: Path) -> None:
    """Three tool calls and the answer, each elected among candidates of which some go astray."""
    program = PLUGS_PROGRAMS["Anthropic's client"]
    if whole:
        program = program.replace("with client.messages.stream(", "if answer := client.messages.create(")
        program = program.replace(") as stream:", "):").replace("stream.get_final_message()", "answer")
    with openai_server(adding) as (url, seen), serving(FakeEngine(), upstream_url=url) as server:
        assert ran(program, tmp_path, server) == "The sum is 224. The answer is 224.\n"
    calls = [message["tool_calls"][0]["id"] for message in seen[-1].body["messages"] if message["role"] == "assistant"]
    assert calls == ["call_0", "call_1", "call_2"]


def test_an_agent_of_openai_s_sdk(tmp_path: Path) -> None:
    with upstream(WRONG, RIGHT, RIGHT) as reasoner, serving(embedded(), upstream_url=reasoner.url) as server:
        assert ran(PLUGS_PROGRAMS["OpenAI's Agents SDK"], tmp_path, server) == f"{RIGHT}\n"
    assert [message["role"] for message in reasoner.bodies[0]["messages"]] == ["system", "user"]


def test_the_page_s_programs_are_all_run() -> None:
    """Those of rewards are run where no framework is needed."""
    agents = [each[0] for each in AGENTS if not each[0].endswith("Refine")]
    others = ["Inspect", "lm-evaluation-harness", "SkyRL", "OptiLLM", "Anthropic's client", "OpenAI's Agents SDK"]
    others += ["Rewards", "Rewards of tokens"]
    assert sorted(PLUGS_PROGRAMS) == sorted([*others, *agents])
