"""Texts that are made of the tokens which no text may become."""

import unicodedata
from collections import Counter
from collections.abc import Mapping

from unprm.formats.pieces import PieceFormat
from unprm.types import Encoded

SHAPES = ("x {} y", "x{}y", "x{0}{0}y", "x {0}, {0}. y", "x {0}+{0}+{0}+y", "({})", "{}")
"""A name with and without space around it, within a word, and among punctuation."""


def check_reserved(form: PieceFormat) -> None:
    """Asserts that a problem and steps with the names of reserved tokens in many places become other tokens, which say
    the same; and so do as many names as the vocabulary has."""
    named = reserved(form)
    harmless = _count(form, form.encode("x", ["y"] * 2))
    for shape in SHAPES:
        text = " ".join(shape.format(name) for name in named.values()).strip()
        encoded = form.encode(text, [text] * 2)
        assert _count(form, encoded) == harmless
        written = text.replace(named[form.tag.id], "") if form.family == "versaprm" and form.tag else text
        least = 1 if form.family == "outcome" else 3  # whose template moves the thoughts of a solution
        assert form.text(encoded).count(unicodedata.normalize("NFC", written)) >= least


def reserved(form: PieceFormat) -> Mapping[int, str]:
    """The texts of the tokens that no text becomes: the family's step tag and the vocabulary's added tokens."""
    added = form.pieces.tokenizer.get_added_tokens_decoder()
    tag = {form.tag.id: form.tag.text} if form.tag else {}
    return {id: token.content for id, token in added.items()} | tag


def _count(form: PieceFormat, encoded: Encoded) -> Counter[int]:
    """How often each reserved token is there."""
    named = reserved(form)
    return Counter(token for token in encoded.ids if token in named)
