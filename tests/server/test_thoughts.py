"""Thoughts in a text are no steps, whatever the endpoint, unless the request says so."""

import pytest

from tests.server.harness import Running, ask

THOUGHT = "<think>4 * 15 = 50? Wait.\n\nNo, 60.</think>"
TEXT = "Step 1: 4 * 15 = 60.\n\nStep 2: The answer is \\boxed{60}."


def test_thoughts_change_no_score_and_no_vote(server: Running) -> None:
    for path in ("/score_steps", "/vote/prm", "/vote/compare", "/score"):
        bodies = [
            {"text_1": "How many?", "text_2": [text]} if path == "/score" else ask(text)
            for text in (TEXT, THOUGHT + TEXT, THOUGHT.removeprefix("<think>") + TEXT)
        ]
        plain, *thinking = (server.post(path, body) for body in bodies)
        assert plain.status_code == 200, plain.text
        for response in thinking:
            left = {"id", "created", "usage"}  # what differs between any two responses
            assert {k: v for k, v in response.json().items() if k not in left} == {
                k: v for k, v in plain.json().items() if k not in left
            }


@pytest.mark.parametrize(("thoughts", "count"), [("leave_out", 2), ("score", 4), (False, 2), (True, 4)])
def test_a_request_may_have_them_scored(server: Running, thoughts: object, count: int) -> None:
    body = ask(f"{THOUGHT}\n\n{TEXT}", thoughts=thoughts)
    (solution,) = server.post("/score_steps", body).json()["solutions"]
    assert len(solution["steps"]) == len(solution["step_scores"]) == count


def test_steps_are_where_they_are_in_the_text_that_was_sent(server: Running) -> None:
    text = THOUGHT + TEXT
    (solution,) = server.post("/score_steps", ask(text, step_spans=True)).json()["solutions"]
    assert [text[start:end] for start, end in solution["step_spans"]] == solution["steps"] == TEXT.split("\n\n")
