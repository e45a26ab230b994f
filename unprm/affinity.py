"""The same question to the same server: what was computed for it is there.

Rendezvous hashing: every server has a rank of its own for each question, and one that comes or goes moves no more
questions than its share (Thaler and Ravishankar, 1998).
"""

import hashlib
from collections.abc import Iterable

HEADER = "X-Question-Hash"
"""Header by which a balancer that doesn't read bodies knows the question."""


def question_hash(problem: str) -> str:
    """A question's name to a balancer: 32 hexadecimal digits; who knows the text can tell them, not the reverse."""
    return hashlib.blake2b(problem.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def ranked(key: str, servers: Iterable[str]) -> list[str]:
    """The servers, the one for this key first, then those that take its place."""
    return sorted(servers, key=lambda server: (hashlib.blake2b(f"{key}\n{server}".encode()).digest(), server))
