"""docs/plugs.md: its programs are run as they stand there, by an environment with the packages that they plug into."""

import itertools
import json
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.clients.programs import PATIENCE, environment
from tests.clients.test_agents_page import embedded
from tests.server.harness import Running, serving
from tests.server.upstream import Upstream, upstream
from tests.support import ROOT, TEST_DATA
from unprm.answers.equivalence import Equivalence
from unprm.answers.extraction import extract

PYTHON = ROOT / ".venv-plugs" / "bin" / "python"
PAGE = (ROOT / "docs" / "plugs.md").read_text("utf-8")
PROGRAMS = {
    section.partition("\n")[0]: program
    for section in PAGE.split("\n## ")
    for program in re.findall(r"```python\n(.*?)```", section, re.DOTALL)
}
RIGHT = "Step 1: 4 * 15 = 60.\nStep 2: 23 + 60 = 83. The answer is \\boxed{83}."
WRONG = "Step 1: 4 * 15 = 50.\nStep 2: 23 + 50 = 73. The answer is \\boxed{73}."
EPOCHS = 6

pytestmark = pytest.mark.skipif(not PYTHON.exists(), reason="`make test-plugs` makes the environment")


def ran(program: str, place: Path, server: Running, reasoner: Upstream | None = None, **variables: str) -> str:
    """What the program prints, run in the directory `place` with the addresses of these servers."""
    program = program.replace("http://127.0.0.1:8000", server.url)
    if reasoner is not None:
        program = program.replace("http://gpu-1:8000/v1", reasoner.url)
    (place / "program.py").write_text(program, "utf-8")  # smolagents reads the source of its tools
    completed = subprocess.run(
        [PYTHON, "program.py"],
        cwd=place,
        env=environment(PYTHONPATH=f"{ROOT}:{ROOT / 'clients'}", HOME=str(place), **variables),
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
                printed.append(ran(PROGRAMS["Inspect"], tmp_path, server, reasoner, LAB_API_KEY="none"))
        accuracies = {}
        with Equivalence() as equivalence:
            for strategy in ("majority", "wrf", "prm"):
                answers = [extract(elected(server, strategy, row["problem"], row["samples"])) for row in rows]
                right = [
                    equivalence.equal(answer or "", row["answer"]) for answer, row in zip(answers, rows, strict=True)
                ]
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
        kept = json.loads(ran(PROGRAMS["lm-evaluation-harness"] + use, tmp_path, server).splitlines()[-1])
        assert kept == [elected(server, "wrf", row["problem"], row["samples"]) for row in rows]
    assert any(text != row["samples"][0] for text, row in zip(kept, rows, strict=True))


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
AGENTS: list[tuple[str, list[Any], str, int]] = [
    ("LangGraph", [WRONG, RIGHT], f"2 None {RIGHT.splitlines()[-1]}\n", 2),
    ("DSPy", [dspy_answer(WRONG, "73"), dspy_answer(RIGHT, "83")], "83\n", 2),
    ("smolagents", CHECKED, "83\n", 2),
    ("PydanticAI", [WRONG, WRONG, RIGHT], f"{RIGHT}\n", 3),
]


@pytest.mark.parametrize(("framework", "texts", "output", "calls"), AGENTS, ids=[each[0] for each in AGENTS])
def test_an_agent(framework: str, texts: list[Any], output: str, calls: int, tmp_path: Path) -> None:
    """The model's first solution is wrong; the server's scores bring the framework to ask again."""
    with serving(embedded()) as server, upstream(*texts) as reasoner:
        assert ran(PROGRAMS[framework], tmp_path, server, reasoner) == output
    assert len(reasoner.bodies) == calls
    if framework != "DSPy":  # whose attempts do not know of each other
        assert "4 * 15 = 50" in json.dumps(reasoner.bodies[-1]["messages"][-1])


def test_the_page_s_programs_are_all_run() -> None:
    assert [*PROGRAMS] == ["Inspect", "lm-evaluation-harness", *(each[0] for each in AGENTS)]
    lengths = {
        name: len(list(itertools.filterfalse(str.isspace, text.splitlines(True)))) for name, text in PROGRAMS.items()
    }
    assert max(lengths[each[0]] for each in AGENTS) <= 25, lengths
