"""Sends the same question to the same server, where its prefix is cached."""

import hashlib

HEADER = "X-Question-Hash"
"""Header that identifies the question to a balancer that doesn't read bodies."""


def question_hash(problem: str) -> str:
    """A question's key for a balancer: 32 hexadecimal digits, computed from the text, which can't be recovered."""
    return hashlib.blake2b(problem.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
