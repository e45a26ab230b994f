"""A calibration of votes for tests of the server."""

from pathlib import Path
from typing import Any

from unprm.election.acceptance import VoteCalibration
from unprm.votes.registry import DEFAULTS, VOTES

LOWEST = 0.6
"""At a risk of 5 %, answers of at least this certainty are accepted."""
ELECTIONS = [(LOWEST, True)] * 60 + [(0.3, False)] * 40


def calibration(directory: Path, **changes: Any) -> Path:
    """The file of one that fits a server with the fake engine, and between two and eight candidates."""
    fields = {
        "pool": "a pool",
        "date": "2026-01-31",
        "confidence": 0.9,
        "model": "fake",
        "aggregate": "min",
        "terms": DEFAULTS.model_dump(),
        "elections": dict.fromkeys(VOTES, ELECTIONS),
        "ranges": {"candidates": (2, 8), "share": (0.2, 1.0), "highest_reward": (0.1, 1.0)},
    }
    path = directory / "calibration.json"
    VoteCalibration(**fields | changes).write(path)
    return path


def stopping(directory: Path, stable: float, round: int, **changes: Any) -> Path:
    """The file of one of elections that stop early."""
    return calibration(directory, terms=DEFAULTS.model_dump() | {"stable": stable, "round": round}, **changes)
