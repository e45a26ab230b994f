"""The same question to the same server: what was computed for it is there.

Rendezvous hashing: every server has a rank of its own for each question, and one that comes or goes moves no more
questions than its share (Thaler and Ravishankar, 1998).
"""

import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

Server = TypeVar("Server")

HEADER = "X-Question-Hash"
"""Header by which a balancer that doesn't read bodies knows the question."""
SURPLUS = 1.4
"""Times the mean that a server may be at work on before others take its questions: more keeps more of what is known
together, less keeps those who ask from waiting."""
FEW = 4
"""Requests that are no reason yet to ask another server."""


def question_hash(problem: str) -> str:
    """A question's name to a balancer: 32 hexadecimal digits; who knows the text can tell them, not the reverse."""
    return hashlib.blake2b(problem.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def ranked(key: str, servers: Iterable[str]) -> list[str]:
    """The servers, the one for this key first, then those that take its place."""
    return sorted(servers, key=lambda server: (hashlib.blake2b(f"{key}\n{server}".encode()).digest(), server))


def bounded(servers: Sequence[Server], running: Mapping[Server, int]) -> list[Server]:
    """The ranked servers, and last among them those that are at work on more requests than their share.

    Consistent hashing with bounded loads (Mirrokni, Thorup and Zadimoghaddam, 2018).
    """
    most = max(FEW, math.ceil(SURPLUS * (sum(running.values()) + 1) / max(len(servers), 1)))
    return sorted(servers, key=lambda server: running[server] >= most)
