"""A pool as others take it: one line a question, compressed."""

import gzip
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from training import resumable
from training.schema import adapter
from unprm.answers.equivalence import Equivalence
from unprm.answers.extraction import extract
from unprm.errors import RecordInvalid

from .sampling import PATIENCE, SampledCandidate

_KEPT = ("text", "predicted", "correct", "finish_reason", "tokens", "mean_logprob")


def pack(place: Path, output: Path) -> tuple[int, dict[str, int]]:
    """Writes the file `output` atomically; returns its size in bytes, and the counts of questions and candidates. The
    verdicts are made anew from the texts.

    Raises `RecordInvalid` if no candidate is there yet.
    """
    questions: dict[str, list[SampledCandidate]] = {}
    equivalence = Equivalence(deadline=PATIENCE)
    for each in _complete(place):
        questions.setdefault(each.question, []).append(_judged(each, equivalence))
    if not questions:
        raise RecordInvalid(str(place), 0, "there is no candidate in it")
    content = gzip.compress(b"".join(_line(*item) for item in sorted(questions.items())), mtime=0)
    resumable.replace(output, content)
    return len(content), {"questions": len(questions), "candidates": sum(map(len, questions.values()))}


def _complete(place: Path) -> Iterator[SampledCandidate]:
    """The candidates of a file that may be written to: its last line may be in the making."""
    for line in place.read_bytes().splitlines(keepends=True):
        if line.endswith(b"\n"):
            yield adapter(SampledCandidate).validate_json(line)


def _judged(candidate: SampledCandidate, equivalence: Equivalence) -> SampledCandidate:
    answer = extract(candidate.text)
    correct = answer is not None and equivalence.equal(answer, candidate.gold_answer)
    return replace(candidate, predicted=answer, correct=correct)


def _line(name: str, candidates: Sequence[SampledCandidate]) -> bytes:
    rows = [
        {key: _rounded(value) for key, value in asdict(each).items() if key in _KEPT}
        | {"confidence": None if each.mean_logprob is None else _rounded(math.exp(each.mean_logprob))}
        for each in candidates
    ]
    about = {"id": name, "problem": candidates[0].problem, "answer": candidates[0].gold_answer}
    return (json.dumps(about | {"candidates": rows}, ensure_ascii=False) + "\n").encode()


def _rounded(value: Any) -> Any:
    return round(value, 4) if isinstance(value, float) else value
