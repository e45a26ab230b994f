"""`unprm_client.rewards`: what trainers call."""

import re
import runpy
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.pages import PLUGS_PROGRAMS
from tests.server.harness import PROBLEM, Running, boxed
from unprm_client import Client
from unprm_client.rewards import Rewarded, rewarded, rewards, token_offsets

SOLUTIONS = [boxed(1, "a"), boxed(2, "b", "c"), " "]


def test_rewards_are_the_lowest_step_scores_or_with_gold_the_outcome(server: Running) -> None:
    problems = [PROBLEM] * len(SOLUTIONS)
    with Client(server.url) as client:
        scored = client.score_steps(PROBLEM, SOLUTIONS).solutions
        lowest = [each.reward or 0.0 for each in scored]
        assert rewards(client, problems, SOLUTIONS) == lowest
        assert rewards(client, problems, SOLUTIONS, ["1", ["3", "2.0"], "1"]) == [1.0, 1.0, 0.0]
        found = rewarded(client, problems, SOLUTIONS, ["1", "1", "1"], combination="outcome_min")
        assert found == [
            Rewarded(True, lowest[0], scored[0].step_scores or []),
            Rewarded(False, 0.0, scored[1].step_scores or []),
            Rewarded(False, 0.0, []),
        ]
        assert rewarded(client, problems[:1], SOLUTIONS[:1])[0].correct is None
        with pytest.raises(ValueError, match="got 3 problems, 3 solutions, 1 golds"):
            rewards(client, problems, SOLUTIONS, ["1"])


def test_a_batch_is_one_request(server: Running) -> None:
    line = 'unprm_requests_total{route="/score_steps"}'
    before = server.metric(line)
    with Client(server.url) as client:
        found = rewards(client, [PROBLEM, "q"] * 3, SOLUTIONS * 2)
        assert server.metric(line) == before + 1
        assert found[0] == rewards(client, [PROBLEM], SOLUTIONS[:1])[0] != found[3]
        assert rewards(client, [PROBLEM] * 4, [" ", [], [""], SOLUTIONS[0]]) == [0.0, 0.0, 0.0, found[0]]
        assert rewards(client, [PROBLEM] * 2, [" ", []]) == [0.0, 0.0]
        before = server.metric(line)
        assert rewards(client, ["q"] * 100, SOLUTIONS[:1] * 100) == [found[3]] * 100
        assert server.metric(line) == before + 2
        assert rewards(client, [], []) == []


def test_offsets_of_tokens_are_their_places_in_the_text_that_they_decode_to() -> None:
    """A character of four bytes in three tokens, and one that decodes to nothing."""
    parts = [b"a b", b"\xf0", b"\x9f\x98", b"\x80 c", b"", b"d"]

    def decode(ids: Sequence[int]) -> str:
        return b"".join(parts[each] for each in ids).decode(errors="replace")

    text, offsets = decode(range(6)), token_offsets(range(6), decode)
    assert text == "a b😀 cd"
    assert [text[start:end] for start, end in offsets] == ["a b", "😀", "", " c", "", "d"]


@pytest.mark.parametrize(
    ("section", "printed"),
    [
        ("Rewards", r"True 1\.\d+ \[.*, .*\]\nFalse 0\.\d+ \[.*, .*\]\n"),
        ("Rewards of tokens", r"\[6, 17\] \[(0\.0, ){6}0\.\d+, (0\.0, ){10}0\.\d+\]\n"),
    ],
)
def test_the_page_s_programs(
    server: Running, tmp_path: Path, capsys: pytest.CaptureFixture[str], section: str, printed: str
) -> None:
    program = tmp_path / "program.py"
    program.write_text(PLUGS_PROGRAMS[section].replace("http://127.0.0.1:8000", server.url), "utf-8")
    runpy.run_path(str(program))
    assert re.fullmatch(printed, capsys.readouterr().out)
