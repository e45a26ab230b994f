"""Encodes text as token ids, with special tokens only where a family's template has them."""

import re
from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import accumulate, chain
from typing import ClassVar, Self

from tokenizers import AddedToken, Tokenizer

from unprm.errors import InvalidRequest, ModelInvalid
from unprm.types import Encoded, Prompt, StepTag

_UNKNOWN = "\U0010fffd"
"""A character that no vocabulary has an entry for."""
_SMALL = 8192
"""Up to so many characters, texts are encoded one by one: the threads that share a batch would take longer."""


class Pieces:
    """Encodes texts for one model, none of which becomes a reserved token: an added one, a template's `marks`, or one
    told by `reserve`; its characters, or bytes, are encoded one by one. `special`: ids of marks and special tokens.

    Added tokens of one character, of space alone, or of a single byte are text. Raises `ModelInvalid` without a mark.
    """

    def __init__(self, tokenizer: Tokenizer, marks: Sequence[str] = ()) -> None:
        self._marks = {mark: token_id(tokenizer, mark) for mark in marks}
        self.tokenizer = plain(tokenizer)
        added = {token.content: token for token in tokenizer.get_added_tokens_decoder().values()}
        self._names = names = {*marks, *(name for name in added if len(name.strip()) > 1)}
        # an added token that is no special one would be recognised in any text
        self.tokenizer.add_special_tokens([_special(added.get(name, AddedToken(name))) for name in sorted(names)])
        unknown = self.tokenizer.encode(_UNKNOWN, add_special_tokens=False).ids  # has no other encoding
        self._reserved = {token_id(self.tokenizer, name) for name in names} - set(unknown)
        self.special = {*self._marks.values(), *(token_id(tokenizer, name) for name in added if added[name].special)}

    def mark(self, name: str) -> int:
        """The id of one of the template's own tokens."""
        return self._marks[name]

    def reserve(self, token: int) -> None:
        """From now on no text becomes this token."""
        self._reserved.add(token)

    def single(self, text: str) -> int:
        """The id of a text that is one token, or the name of an added one; raises `ModelInvalid` if it is neither."""
        if text in self._names:
            return token_id(self.tokenizer, text)
        (ids,) = self.encode([text])
        if len(ids) != 1:
            raise ModelInvalid(
                f"{text!r} is {len(ids)} tokens in the base's vocabulary, a step tag or verdict takes one"
            )
        return ids[0]

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Ids of each text, encoded separately, with no special tokens added."""
        together = sum(map(len, texts)) > _SMALL
        batches = [list(texts)] if together else [[text] for text in texts]
        encodings = chain.from_iterable(
            self.tokenizer.encode_batch_fast(batch, add_special_tokens=False) for batch in batches
        )
        return [
            list(ids) if self._reserved.isdisjoint(ids) else [each for token in ids for each in self._spelled(token)]
            for ids in (encoding.ids for encoding in encodings)
        ]

    def locate(self, parts: Sequence[str], closing: int | None = None) -> tuple[list[int], list[int]]:
        """Ids of the parts as one text, and the index of each part's last token. `closing`: ends parts in the
        template."""
        encoding = self.tokenizer.encode("".join(parts), add_special_tokens=False)
        starts = [start for start, _ in encoding.offsets]
        found, token = [], 0
        for end in accumulate(map(len, parts)):
            while token + 1 < len(starts) and starts[token + 1] < end:
                token += 1
            found.append(token)
        ends = {token for token in found if encoding.ids[token] == closing}
        ids: list[int] = []
        last = []  # of each token, the index of its last id
        for place, token in enumerate(encoding.ids):
            ids += [token] if place in ends else self._spelled(token)
            last.append(len(ids) - 1)
        return ids, [last[token] for token in found]

    def _spelled(self, token: int) -> list[int]:
        """The token, or, if it is a reserved one, those of its characters, or of their bytes."""
        if token not in self._reserved:
            return [token]
        ids: list[int] = []
        for character in self.tokenizer.id_to_token(token) or "":
            single = self.tokenizer.token_to_id(character)
            if single is not None and single not in self._reserved:
                ids.append(single)
                continue
            for byte in character.encode():
                if (single := self.tokenizer.token_to_id(f"<0x{byte:02X}>")) is None:
                    return [token]
                ids.append(single)
        return ids


class PieceFormat:
    """Common base of the formats. `marks`: the template's own tokens, without which it raises `ModelInvalid`; `tag`:
    None for a family without one, which reads no prompts."""

    marks: ClassVar[tuple[str, ...]] = ()
    family: str
    tag: StepTag | None = None
    system = ""

    def __init__(self, tokenizer: Tokenizer, marks: Sequence[str] = ()) -> None:
        self._begins = tokenizer.post_processor
        self.pieces = Pieces(tokenizer, (*self.marks, *marks))
        # entries consist of bytes or characters, and a text has at least as many bytes as characters
        self.longest_token = max(map(len, self.pieces.tokenizer.get_vocab()))

    def tokenize(self, prompt: Prompt) -> tuple[int, ...]:
        if not isinstance(prompt.content, str):
            unknown = {token for token in set(prompt.content) if self.pieces.tokenizer.id_to_token(token) is None}
            if unknown:
                raise InvalidRequest(f"{len(unknown)} token ids that were sent are not in the model's vocabulary")
            return prompt.content
        tag = self.tag
        first, *others = prompt.content.split(tag.text) if tag and tag.apart else [prompt.content]
        ids = list(self._recognising.encode(first, add_special_tokens=prompt.begins).ids)
        for part in others:
            assert tag is not None
            ids += [tag.id, *self._recognising.encode(part, add_special_tokens=False).ids]
        return tuple(ids)

    def at_tags(self, ids: Sequence[int]) -> Encoded:
        if self.tag is None:
            raise InvalidRequest(f"models of family {self.family} have no step tag to score a prompt at: send messages")
        kept = list(ids)
        if self.tag.id not in kept:
            while kept and (kept[-1] in self.pieces.special or not self._decoded(kept[-1:]).strip()):
                kept.pop()
            if not kept:
                raise InvalidRequest("a prompt has no text")
            kept.append(self.tag.id)
        return Encoded(tuple(kept), tuple(place for place, token in enumerate(kept) if token == self.tag.id))

    def tagged(self, texts: Sequence[str], tag: Sequence[int], begin: Sequence[int] = ()) -> Encoded:
        """The ids `begin`, the first text, and the others, steps, each encoded apart and scored at its tag's last
        id."""
        head, *pieces = self.pieces.encode(texts)
        return Draft().add([*begin, *head]).steps(pieces, tag).done()

    @cached_property
    def _recognising(self) -> Tokenizer:
        """A tokenizer for prompts: special tokens in a text are what they say."""
        copy = Tokenizer.from_str(self.pieces.tokenizer.to_str())
        copy.post_processor = self._begins
        return copy

    def text(self, encoded: Encoded) -> str:
        return self._decoded(encoded.ids)

    def tokens(self, encoded: Encoded) -> list[str]:
        return [self.pieces.tokenizer.id_to_token(token) or "" for token in encoded.ids]

    def _decoded(self, ids: Sequence[int]) -> str:
        return str(self.pieces.tokenizer.decode(list(ids), skip_special_tokens=False))


class Draft:
    """An input under construction."""

    def __init__(self) -> None:
        self._ids: list[int] = []
        self._positions: list[int] = []

    def __len__(self) -> int:
        return len(self._ids)

    def add(self, ids: Sequence[int], scored: Sequence[int] = ()) -> Self:
        """Appends these ids; `scored`: indices among them at which a score is read."""
        self._positions += (len(self._ids) + index for index in scored)
        self._ids += ids
        return self

    def steps(self, pieces: Sequence[Sequence[int]], tag: Sequence[int]) -> Self:
        """Appends steps, each with the ids of a tag after it, at the last of which it is scored."""
        for ids in pieces:
            self.add([*ids, *tag], [len(ids) + len(tag) - 1])
        return self

    def done(self, response: int = 0) -> Encoded:
        """The finished input; `response`: the index of the solution's first token."""
        return Encoded(tuple(self._ids), tuple(self._positions), response)


def plain(tokenizer: Tokenizer) -> Tokenizer:
    """A copy for user text: text that looks like a special token is encoded as plain characters."""
    copy = Tokenizer.from_str(tokenizer.to_str())
    copy.no_padding()
    copy.no_truncation()
    copy.encode_special_tokens = True
    # a post-processor might add tokens, and exclude space from offsets
    copy.post_processor = None
    return copy


def _special(token: AddedToken) -> AddedToken:
    """The same as a special token."""
    flags = {name: getattr(token, name) for name in ("single_word", "lstrip", "rstrip", "normalized")}
    return AddedToken(token.content, special=True, **flags)


def parts_of(text: str, tokenizer: Tokenizer) -> list[str]:
    """A template's text, parted at the vocabulary's added tokens: text and tokens by turns, from text to text."""
    return parted_at(added_names(tokenizer)).split(text)


def added_names(tokenizer: Tokenizer) -> list[str]:
    """The names of the vocabulary's added tokens."""
    return [token.content for token in tokenizer.get_added_tokens_decoder().values()]


def parted_at(names: Iterable[str]) -> re.Pattern[str]:
    """Any of these names, the longest first; as a group, so that a text is parted into text and names by turns."""
    return re.compile(f"({'|'.join(map(re.escape, sorted(names, key=len, reverse=True))) or '(?!)'})")


def token_id(tokenizer: Tokenizer, token: str) -> int:
    """The id of a vocabulary entry; raises `ModelInvalid` if there is none."""
    found = tokenizer.token_to_id(token)
    if found is None:
        raise ModelInvalid(f"the tokenizer has no token {token!r}, which this family's input is made with")
    return int(found)
