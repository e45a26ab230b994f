"""All votes: every module here that has a `VOTE`, and what is made of them."""

import pkgutil
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from pydantic import create_model

import unprm.votes
from unprm.votes.vote import Terms, Vote


def _found() -> Iterator[Vote]:
    for module in pkgutil.iter_modules(unprm.votes.__path__):
        vote = getattr(import_module(f"unprm.votes.{module.name}"), "VOTE", None)
        if isinstance(vote, Vote):
            yield vote


VOTES: Mapping[str, Vote] = {vote.name: vote for vote in sorted(_found(), key=lambda vote: (vote.order, vote.name))}
REWARD_STRATEGIES = tuple(name for name, vote in VOTES.items() if vote.signal in ("none", "reward"))
"""The votes for which answers and rewards are enough."""

if TYPE_CHECKING:
    Strategy: TypeAlias = str

    class VoteTerms(Terms):
        """The settings of all votes; each vote reads its own."""

        def __init__(self, **settings: Any) -> None: ...

else:
    Strategy = Literal[tuple(VOTES)]
    VoteTerms = create_model(
        "VoteTerms",
        # a model has the fields of its last base first
        __base__=tuple(dict.fromkeys(vote.terms for vote in reversed(VOTES.values()) if vote.terms is not Terms)),
        __doc__="The settings of all votes; each vote reads its own.",
    )

DEFAULTS = VoteTerms()
