"""Sends the same question to the same server, where its prefix is cached.

Rendezvous hashing: every server has its own rank for each question, and adding or removing one moves no more
questions than its share (Thaler and Ravishankar, 1998).
"""

import hashlib
from collections.abc import Iterable

HEADER = "X-Question-Hash"
"""Header that identifies the question to a balancer that doesn't read bodies."""


def question_hash(problem: str) -> str:
    """A question's key for a balancer: 32 hexadecimal digits, computed from the text, which can't be recovered."""
    return hashlib.blake2b(problem.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def ranked(key: str, servers: Iterable[str]) -> list[str]:
    """The servers, the one for this key first, then its substitutes in order."""
    return sorted(servers, key=lambda server: (hashlib.blake2b(f"{key}\n{server}".encode()).digest(), server))
