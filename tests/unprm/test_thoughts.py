"""What a text says in thoughts is no step of it."""

import pytest

from unprm.steps import blanked, separated, split

SOLUTION = "Step 1: 4 * 15 = 60.\n\nStep 2: 23 + 60 = 83."
STEPS = ["Step 1: 4 * 15 = 60.", "Step 2: 23 + 60 = 83."]


@pytest.mark.parametrize(
    "text",
    [
        SOLUTION,
        f"<think>4*15 = 50? Wait.\n\nNo, 60.</think>\n\n{SOLUTION}",
        f"4*15 = 50? Wait.\n\nNo, 60.</think>{SOLUTION}",
        f"[THINK]50?[/THINK]{SOLUTION}",
        f"<reasoning>50?</reasoning>\n{SOLUTION}<think>Is that right?",
        f"<|channel|>analysis<|message|>50?<|channel|>final\n\n{SOLUTION}",
        SOLUTION.replace("\n\n", "<scratchpad>50?\n\n51?</scratchpad>"),
    ],
)
def test_thoughts_are_no_steps(text: str) -> None:
    assert split(text) == STEPS


@pytest.mark.parametrize("text", ["a <think> b", "a</think>b", "</think></think>", "<think>", "a < b, think > c", ""])
def test_a_text_keeps_its_length(text: str) -> None:
    assert len(blanked(text)) == len(text)


def test_what_is_outside_and_inside() -> None:
    assert separated("a<think>b</think>c") == ("a\nc", "b")
    assert separated("a</think>b</think>c") == ("c", "a\nb")
