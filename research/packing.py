"""A pool as others take it: one line a question, compressed, with a card."""

import gzip
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from training import resumable
from training.schema import adapter
from unprm.answers.equivalence import Equivalence
from unprm.answers.extraction import extract
from unprm.election.decide import decide
from unprm.errors import RecordInvalid

from .sampling import PATIENCE, SampledCandidate

FILE = "candidates.jsonl.gz"
_KEPT = ("text", "predicted", "correct", "finish_reason", "tokens", "mean_logprob")
_CARD = """---
license: apache-2.0
tags: [best-of-n, unprm]
---

# {name}

{candidates} candidate solutions of {questions} questions of `{source}`, sampled from `{model}`; {right:.1%} of them are
right.{majority}{unfinished}

| | |
|---|---|
| weights, SHA-256 | `{weights}` |
| licence of the weights | Apache-2.0 |
| licence of the questions | MIT |
| questions | {limit}, drawn with seed {seed}{among} |
| system prompt | `{system}` |
| user's message | the problem alone |
| temperature | {temperature}, all tokens possible (`top_p` 1, `top_k` 0, `min_p` 0) |
| most tokens | {max_tokens}; {cut} candidates were truncated there (`finish_reason` "length") |

`{file}`: a line for each question, with `id`, `problem`, its gold `answer` and its `candidates`. A candidate has its
`text`; the answer that it states, `predicted`, null if none; `correct`, whether that is the gold answer as mathematics;
the number of its `tokens`; `mean_logprob`, the mean log-probability of its tokens in nats, before temperature; and
`confidence`, its exponential, the probability per token, which the vote `cisc` takes. `unprm evaluate best-of-n` reads
it.
"""


def pack(place: Path, output: Path) -> tuple[int, dict[str, Any]]:
    """Writes `output/candidates.jsonl.gz` and the card `output/README.md`, each atomically; returns the size of the
    former in bytes, and the counts of questions and candidates. The verdicts are made anew from the texts.

    Raises `RecordInvalid` if no candidate is there yet.
    """
    config = resumable.config_of(place)
    questions: dict[str, list[SampledCandidate]] = {}
    equivalence = Equivalence(deadline=PATIENCE)
    for each in _complete(place):
        questions.setdefault(each.question, []).append(_judged(each, equivalence))
    candidates = [each for several in questions.values() for each in several]
    if not candidates:
        raise RecordInvalid(str(place), 0, "there is no candidate in it")
    full = [several for several in questions.values() if len(several) == config["samples"]]
    elected = sum(_elects_right(several, equivalence) for several in full)
    content = gzip.compress(b"".join(_line(*item) for item in sorted(questions.items())), mtime=0)
    output.mkdir(parents=True, exist_ok=True)
    resumable.replace(output / FILE, content)
    counts = {"questions": len(questions), "candidates": len(candidates)}
    wanted = config["limit"] * config["samples"]
    majority = ""
    if full:
        single = fmean(each.correct for several in full for each in several)
        majority = (
            f" Of the {len(full)} questions that have all {config['samples']}, a single candidate gets {single:.1%} "
        )
        majority += f"right, the majority of all {elected / len(full):.1%}."
    card = _CARD.format(
        **config | counts,
        name=output.name,
        source=config["questions"],
        right=fmean(each.correct for each in candidates),
        majority=majority,
        cut=sum(each.finish_reason == "length" for each in candidates),
        unfinished=f" Sampling goes on: {wanted} candidates are wanted." * (len(candidates) < wanted),
        among=f", among those with {' or '.join(config['only'])}" if config["only"] else "",
        file=FILE,
    )
    resumable.replace(output / "README.md", card)
    return len(content), counts


def _complete(place: Path) -> Iterator[SampledCandidate]:
    """The candidates of a file that may be written to: its last line may be in the making."""
    for line in place.read_bytes().splitlines(keepends=True):
        if line.endswith(b"\n"):
            yield adapter(SampledCandidate).validate_json(line)


def _judged(candidate: SampledCandidate, equivalence: Equivalence) -> SampledCandidate:
    answer = extract(candidate.text)
    correct = answer is not None and equivalence.equal(answer, candidate.gold_answer)
    return replace(candidate, predicted=answer, correct=correct)


def _elects_right(candidates: Sequence[SampledCandidate], equivalence: Equivalence) -> bool:
    stated = [each for each in candidates if each.predicted is not None]
    if not stated:
        return False
    classes = equivalence.classes([str(each.predicted) for each in stated])
    return stated[decide("majority", classes).solution_index].correct


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
