"""Every reader of a caller's text takes time that is linear in its length: of texts that are twice as long, at most
about twice as much."""

import gc
import json
import time
from collections.abc import Callable
from functools import partial

import pytest

from unprm.answers.canonical import canonical
from unprm.answers.equivalence import Equivalence
from unprm.answers.extraction import extract, stated_value
from unprm.answers.kinds import KINDS, canonical_json, json_answer, read_kind
from unprm.answers.mathtext.prose import boxes
from unprm.answers.mathtext.tokens import tokenise
from unprm.answers.moments import moment_or_formula
from unprm.answers.options import lists_options
from unprm.answers.weak import weak_reading
from unprm.checks import check
from unprm.steps import blanked, separated, split, untagged
from unprm.trajectories import Message, Reading, conversation, render
from unprm.types import StepTag

SIZES = 2**14, 2**16, 2**18, 2**20
"""Characters. A length four times as long may take eight times as long, since clocks are noisy; quadratic work, sixteen
times."""
ENOUGH = 0.03
"""Seconds of processor time after which no longer text is tried."""
UNSURE = 0.008
"""Seconds below which times say nothing."""
TAGS = [StepTag(0, "ş"), StepTag(1, " ки")]


def _messages(text: str) -> list[Message]:
    called = [{"id": "c", "type": "function", "function": {"name": "f", "arguments": json.dumps({"a": text})}}]
    return [
        Message.model_validate(each)
        for each in (
            {"role": "user", "content": text},
            {"role": "assistant", "content": text, "reasoning_content": text, "tool_calls": called},
            {"role": "tool", "tool_call_id": "c", "content": text},
        )
    ]


READERS: dict[str, Callable[[str], object]] = {
    **{f"extract {mode}": partial(extract, mode=mode) for mode in ("auto", "last_number", "choice")},
    "extract from what is cut": partial(extract, cut=True),
    "stated value": stated_value,
    "weak reading": weak_reading,
    "weak reading of a problem": partial(weak_reading, "So it is 5 and 6."),
    "kinds": lambda text: read_kind([text, f"{text}."], [False, False], 2),
    "words": KINDS["short_text"].key,
    "JSON": partial(json_answer, inside=True),
    "canonical JSON": lambda text: canonical_json([text, {text: text}]),
    "options": lists_options,
    "canonical": canonical,
    "tokens": tokenise,
    "boxes": boxes,
    "dates": moment_or_formula,
    "classes": lambda text: Equivalence().classes([text, f"{text}x"]),
    **{f"split {mode}": partial(split, mode=mode, tags=TAGS) for mode in ("auto", "line")},
    "thoughts": lambda text: (separated(text), blanked(text)),
    "tags": partial(untagged, tags=TAGS),
    "trajectory": lambda text: render(_messages(text), Reading(thoughts=True)),
    "conversation": lambda text: conversation(_messages(text)),
    "checks": check,
}
UNITS = {
    "extract": [
        "a",
        " ",
        "\n",
        "1,000 ",
        "\\boxed{",
        "\\boxed{1}",
        "the answer is ",
        "Answer\n",
        "</answer>",
    ],
    "extract choice": ["(A) ", "A, ", "B is correct ", "\nA) ", "not 5 but "],
    "stated": ["$", "\\(", "1,", "*", ".", "five "],
    "weak": ["1 ", "(1", "is ", "= 1 ", "$1$ "],
    "kinds": ["a: ", "- a\n", "yes, ", "```\n", '{"a":'],
    "words": ["a ", "1.", '"', "-"],
    "JSON": ["[", '{"a":', '{"a":1} ', "[1,", "```json\n", '"'],
    "canonical": ["a", "1,", "{", "^", "\\text{", "½", '"'],
    "options": ["(A) ", "\nA) ", "$", " "],
    "tokens": ["\\", "1e", "\\text{", "\\begin{a}", " "],
    "boxes": ["\\boxed{", "\\boxed{1}", "{}", "\\"],
    "dates": ["Jan 1 ", "12:", "H2"],
    "classes": ["x+", "(", "1,000", "1 and "],
    "split": ["a\n\n", "\nStep 1", "```\n", "$$", "\\begin{a}", "\\[", "ş", " ки"],
    "thoughts": ["<think>", "</think>", "<", "<|channel|>analysis", "[/"],
    "tags": ["ş", "ş ", " ки", "ки"],
    "trajectory": ["a", "<think>", '"', "é"],
    "conversation": ["a", "</think>", " "],
    "checks": ["1 + 1 = 2 ", "1=", "\\frac{1}", "\\approx{", "(", "%"],
}
"""What the texts of a reader repeat, by the beginning of its name."""
CASES = [(name, unit) for name in READERS for begin, units in UNITS.items() if name.startswith(begin) for unit in units]


def seconds(read: Callable[[str], object], text: str) -> float:
    gc.collect(0)
    gc.disable()  # its time depends on what other tests left
    try:
        begun = time.thread_time()
        read(text)
        return time.thread_time() - begun
    finally:
        gc.enable()


@pytest.mark.parametrize(("name", "unit"), CASES)
def test_the_time_grows_with_the_length(name: str, unit: str) -> None:
    read, last = READERS[name], None
    for size in SIZES:
        text = unit * (size // len(unit))
        took = seconds(read, text)
        for _ in range(4):
            if last is None or took <= 8 * max(last, UNSURE):
                break
            took = min(took, seconds(read, text))
        else:
            pytest.fail(f"{size} characters take {took:.3f} s, a quarter of them {last:.3f} s")
        if took > ENOUGH:
            break
        last = took
