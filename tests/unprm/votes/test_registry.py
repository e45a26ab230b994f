"""A vote is one file: one that a test adds is found at every surface."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support import ROOT
from unprm.votes.registry import REWARD_STRATEGIES, VOTES, VoteTerms
from unprm.votes.vote import Terms

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    """What the surfaces say in a process that has the vote `passing`, too."""
    paths = os.pathsep.join(map(str, (ROOT, ROOT / "clients")))
    done = subprocess.run(
        [sys.executable, "-m", "tests.unprm.votes.surfaces", str(HERE / "added")],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": paths},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    answers: dict[str, Any] = json.loads(done.stdout)
    return answers


def test_it_is_voted_on_over_http(found: dict[str, Any]) -> None:
    assert (found["default"]["answer"], found["default"]["margin"]) == ("1", 1.0)
    assert (found["strict"]["answer"], found["strict"]["decided_by"]) == ("2", "combined")
    assert found["refused"]["errors"][0]["pointer"] == "/pass_mark"
    assert list(found["compared"]) == [*REWARD_STRATEGIES, "passing"]
    assert found["compared"]["passing"]["answer"] == "2"
    assert (
        found["unknown"]
        == f"the name after /vote/ is not a vote; expected one of {', '.join([*VOTES, 'passing', 'compare'])}"
    )


def test_it_is_described(found: dict[str, Any]) -> None:
    operation = found["openapi"]["paths"]["/vote/passing"]["post"]
    assert operation["summary"] == "The answer with the most solutions that pass"
    schemas = found["openapi"]["components"]["schemas"]
    for name in ("PassingRequest", "CompareRequest"):
        assert schemas[name]["properties"]["pass_mark"]["maximum"] == 1
    assert (found["page"]["passing"]["title"], found["page"]["passing"]["score"]) == (
        "Passing",
        "number of passing solutions",
    )


def test_the_clients_have_it(found: dict[str, Any]) -> None:
    assert found["client"] == "2"
    assert found["command"].startswith("passing elects 2, ")
    assert "--pass-mark" in found["help"]
    assert "passing: The answer with the most solutions that pass" in " ".join(found["help"].replace("│", "").split())
    assert "passing" in found["tool"]["strategy"]["anyOf"][0]["enum"]
    assert "passing: The answer with the most solutions that pass" in found["tool"]["strategy"]["description"]
    assert found["tool"]["pass_mark"] == {
        "default": 0.5,
        "description": "passing: Solutions with a lower reward don't count.",
        "maximum": 1,
        "minimum": 0,
        "title": "Pass Mark",
        "type": "number",
    }
    assert (found["called"]["answer"], found["called"]["margin"]) == ("1", 1.0)


def test_the_gateway_the_evaluation_and_the_library_have_it(found: dict[str, Any]) -> None:
    assert found["named"] == ["passing", "4", "m"]
    assert found["best_of_n"].count("| passing |") == 4  # with each aggregate
    assert set(found["chosen"]) == {"min, pass_mark 0.8"}
    assert found["library"] == "2"


def test_it_is_gone_again() -> None:
    assert "passing" not in VOTES


@pytest.mark.parametrize("vote", VOTES.values(), ids=list(VOTES))
def test_every_vote_says_what_it_is(vote: Any) -> None:
    assert (VOTES[vote.name], issubclass(VoteTerms, vote.terms)) == (vote, True)
    assert vote.terms is Terms or vote.grid
    assert all(field.description for field in vote.terms.model_fields.values())
    assert not vote.summary.endswith(".")
    assert vote.description.endswith(".")
