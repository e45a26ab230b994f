"""What `unprm.answers` says of every recorded candidate: its answer, its class among its question's, and whether it is
right. These are all verdicts, so that a change of any shows."""

import json
from pathlib import Path

from tests.support import ROOT
from training.evaluate import pool
from unprm.answers.equivalence import Equivalence
from unprm.answers.extraction import extract

POOLS = ROOT / "docs" / "lab" / "pools"


def verdicts(_: Path) -> dict[str, str]:
    """A line for each candidate; one file for each pool."""
    equivalence = Equivalence(deadline=60)  # in which all are compared on any machine
    made = {
        place.name: "".join(line for question in pool.read_pool(place) for line in _lines(question, equivalence))
        for place in sorted(POOLS.glob("*.jsonl.gz"))
    }
    assert equivalence.stats.late == equivalence.stats.failures == 0
    return made


def _lines(question: pool.CandidatePool, equivalence: Equivalence) -> list[str]:
    answers = [extract(text) for text in question.texts]
    stated = [answer for answer in answers if answer is not None]
    classes = iter(equivalence.classes(stated))
    # one by one: among others, the gold answer could change which of them are equal
    right = {answer: equivalence.equal(answer, question.gold_answer) for answer in dict.fromkeys(stated)}
    rows = [
        {"question": question.id, "candidate": index, "answer": answer}
        | ({} if answer is None else {"class": next(classes), "right": right[answer]})
        for index, answer in enumerate(answers)
    ]
    return [json.dumps(row, ensure_ascii=False) + "\n" for row in rows]
