"""Sends the same question to the same server, where its prefix is cached.

Rendezvous hashing: every server has its own rank for each question, and adding or removing one moves no more
questions than its share (Thaler and Ravishankar, 1998).
"""

import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

Server = TypeVar("Server")

HEADER = "X-Question-Hash"
"""Header that identifies the question to a balancer that doesn't read bodies."""
SURPLUS = 1.4
"""A server may run this many times the mean number of requests before others take its questions: a higher value
improves cache reuse, a lower one shortens waits."""
FEW = 4
"""A server that runs fewer requests than this is never passed over."""


def question_hash(problem: str) -> str:
    """A question's key for a balancer: 32 hexadecimal digits, computed from the text, which can't be recovered."""
    return hashlib.blake2b(problem.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def ranked(key: str, servers: Iterable[str]) -> list[str]:
    """The servers, the one for this key first, then its substitutes in order."""
    return sorted(servers, key=lambda server: (hashlib.blake2b(f"{key}\n{server}".encode()).digest(), server))


def bounded(servers: Sequence[Server], running: Mapping[Server, int]) -> list[Server]:
    """The ranked servers, with those that run more requests than their share moved to the end.

    Consistent hashing with bounded loads (Mirrokni, Thorup and Zadimoghaddam, 2018).
    """
    most = max(FEW, math.ceil(SURPLUS * (sum(running.values()) + 1) / max(len(servers), 1)))
    return sorted(servers, key=lambda server: running[server] >= most)
