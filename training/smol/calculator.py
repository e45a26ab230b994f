"""A calculator for the reasoner, as in "Training Verifiers to Solve Math Word Problems" (Cobbe et al., 2021, B).

Once the reasoner begins to write the result of an expression, the right one is written instead. A model this small
can't do sums; what is studied is how it errs in meaning.
"""

import re
from collections.abc import Sequence

from transformers import PreTrainedTokenizerBase

from .equations import calculated
from .questions import written

_LONGEST = 64
"""Tokens before a result in which its expression is looked for."""
_EXPRESSION = re.compile(r"([\d(.][\d .,+*/x()$-]*)= ?\$?$")


class Calculator:
    """Amends the tokens that a sampler draws, for a tokenizer with a token for each digit."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self._tokenizer = tokenizer
        self._digits = dict(zip(tokenizer.convert_tokens_to_ids(list("0123456789.-")), "0123456789.-", strict=True))

    def __call__(self, ids: Sequence[int], drawn: int) -> Sequence[int]:
        """The ids of the result if the token drawn begins one, else the token."""
        if drawn not in self._digits or ids[-1] in self._digits:
            return (drawn,)
        found = _EXPRESSION.search(self._tokenizer.decode(ids[-_LONGEST:]))
        value = calculated(found[1]) if found else None
        if value is None:
            return (drawn,)
        return tuple(self._tokenizer.encode(written(value), add_special_tokens=False))
