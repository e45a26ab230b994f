"""Where the steps of a text are: in code points, and among a policy's tokens."""

import re
from typing import Any

import pytest

from tests.server.harness import Running, ask
from unprm_client import ScoreResponse
from unprm_client.rewards import per_token, process_advantages

TEXT = "\n  Let 𝑥 = 2 😀.\r\n\r\nThen x² = 4.\n\n---\n\nThe answer is \\boxed{4}.\n"
STEPS = ["Let 𝑥 = 2 😀.", "Then x² = 4.", "The answer is \\boxed{4}."]
TOKENS = [*(match.span() for match in re.finditer(r"\s*\S+|\s+", TEXT)), (0, 0)]
"""Words with the space before them, and a special token at the end."""


def scored(server: Running, *solutions: Any, **more: Any) -> list[dict[str, Any]]:
    response = server.post("/score_steps", ask(*solutions, **more))
    assert response.status_code == 200, response.text
    found: list[dict[str, Any]] = response.json()["solutions"]
    return found


def test_spans_are_returned_in_code_points_if_asked_for(server: Running) -> None:
    asked, listed = scored(server, TEXT, STEPS, step_spans=True)
    assert asked["steps"] == STEPS
    assert [TEXT[start:end] for start, end in asked["step_spans"]] == STEPS
    assert "step_spans" not in listed
    assert not {"step_spans", "last_tokens"} & set(scored(server, TEXT)[0])


def test_a_step_ends_at_the_token_with_its_last_character(server: Running) -> None:
    (found,) = scored(server, {"text": TEXT, "offsets": TOKENS})
    ends = [TEXT[slice(*TOKENS[index])].split()[-1] for index in found["last_tokens"]]
    assert ends == ["😀.", "4.", "\\boxed{4}."]
    whole = [(0, len(TEXT))]
    assert scored(server, {"text": TEXT, "offsets": whole})[0]["last_tokens"] == [0, 0, 0]
    for nothing in ({"text": " ", "offsets": whole}, {"text": "", "offsets": []}):  # a policy that wrote no token
        assert scored(server, nothing, "a")[0]["last_tokens"] == []


@pytest.mark.parametrize(
    ("offsets", "said"),
    [
        (TOKENS[:5], "no token has the last character of step 1"),
        ([(0, 0)], "no token has the last character of step 0"),
        (TOKENS[1::-1], "a token begins before the one before it"),
        ([(start + 100, end + 100) for start, end in TOKENS], f"a token ends at 163, and the text at {len(TEXT)}"),
        ([*TOKENS, (len(TEXT), len(TEXT) + 1)], f"a token ends at 64, and the text at {len(TEXT)}"),
    ],
    ids=["cut", "special", "backwards", "with the prompt", "in other units"],
)
def test_offsets_of_another_text_are_refused(server: Running, offsets: list[tuple[int, int]], said: str) -> None:
    refused = server.post("/score_steps", ask({"text": TEXT, "offsets": offsets}))
    assert refused.status_code == 422
    assert said in refused.json()["detail"]
    assert refused.json()["errors"][0]["pointer"] == "/solutions/0/offsets"


def test_offsets_go_with_a_text(server: Running) -> None:
    assert server.post("/score_steps", ask({"steps": ["a"], "offsets": [[0, 1]]})).status_code == 422


def test_scores_or_their_differences_are_put_on_tokens(server: Running) -> None:
    response = server.post(
        "/score_steps", ask({"text": TEXT, "offsets": TOKENS}, TEXT, {"text": "", "offsets": TOKENS})
    )
    placed, plain, blank = ScoreResponse.model_validate(response.json()).solutions
    assert placed.step_scores is not None
    assert placed.last_tokens is not None
    first, second, third = placed.step_scores
    for differences, values in ((False, [first, second, third]), (True, [first, second - first, third - second])):
        made = per_token(placed, len(TOKENS), differences=differences)
        assert len(made) == len(TOKENS)
        assert [made[place] for place in placed.last_tokens] == pytest.approx(values)
        assert sum(made) == pytest.approx(sum(values))
    assert per_token(blank, 4) == [0.0] * 4
    with pytest.raises(ValueError, match="offsets"):
        per_token(plain, 4)


def test_a_token_s_advantage_is_that_of_the_steps_that_end_there_or_later(server: Running) -> None:
    given = [{"text": text, "offsets": [[0, 1], [1, 3], [3, 4]]} for text in ("a\n\nb", " ", "a  b")]
    sent = [each | {"step_scores": scores} for each, scores in zip(given, ([0.9, 0.3], None, [0.6]), strict=True)]
    response = server.post("/score_steps", ask(*sent))
    found = process_advantages(ScoreResponse.model_validate(response.json()).solutions, 4)
    high = 0.3 / (0.06**0.5 + 1e-4)
    assert found[0] == pytest.approx([0.0, -high, -high, 0.0])
    assert found[1] == [0.0] * 4
    assert found[2] == pytest.approx([0.0] * 4)
