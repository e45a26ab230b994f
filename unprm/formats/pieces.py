"""Encodes text as token ids, with special tokens only where a family's template has them."""

import re
from collections.abc import Sequence
from functools import cached_property
from itertools import accumulate
from typing import ClassVar, NamedTuple, Self

from tokenizers import AddedToken, Tokenizer

from unprm.errors import InvalidRequest, ModelInvalid
from unprm.types import Encoded, Prompt


class Pieces:
    """Encodes pieces of text for one model. Text that looks like a special token, or like one of the template's own
    tokens, `marks`, is encoded as plain characters.

    Raises `ModelInvalid` if the vocabulary lacks one of `marks`.
    """

    def __init__(self, tokenizer: Tokenizer, marks: Sequence[str] = ()) -> None:
        self._marks = {mark: token_id(tokenizer, mark) for mark in marks}
        self.tokenizer = plain(tokenizer)
        # a mark that is an added token, but not a special one, would be recognised in any text
        self.tokenizer.add_special_tokens([AddedToken(mark, special=True) for mark in marks])

    def mark(self, name: str) -> int:
        """The id of one of the template's own tokens."""
        return self._marks[name]

    def single(self, text: str) -> int:
        """The id of a text that is one token; raises `ModelInvalid` if it isn't."""
        (ids,) = self.encode([text])
        if len(ids) != 1:
            raise ModelInvalid(
                f"{text!r} is {len(ids)} tokens in the base's vocabulary, a step tag or verdict takes one"
            )
        return ids[0]

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Ids of each text, encoded separately, with no special tokens added."""
        encodings = self.tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)
        return [list(encoding.ids) for encoding in encodings]

    def locate(self, parts: Sequence[str]) -> tuple[list[int], list[int]]:
        """Ids of the text that the parts make, encoded as one; and for each part, none of them empty, the index of the
        token in which its last character ends."""
        encoding = self.tokenizer.encode("".join(parts), add_special_tokens=False)
        starts = [start for start, _ in encoding.offsets]
        found, token = [], 0
        for end in accumulate(map(len, parts)):
            while token + 1 < len(starts) and starts[token + 1] < end:
                token += 1
            found.append(token)
        return list(encoding.ids), found


class StepTag(NamedTuple):
    """The token that ends each step of a family. `text`: its text in a prompt, whose parts between tags are
    encoded separately; empty if tags are encoded with the text around them."""

    id: int
    text: str


class PieceFormat:
    """Common base of the formats: `pieces`, and ids as readable text. `marks`: the template's own tokens; further ones
    may be given for a model. `tag`: None for a family without a step tag, which reads no prompts.

    Raises `ModelInvalid` if the vocabulary lacks one of `marks`.
    """

    marks: ClassVar[tuple[str, ...]] = ()
    family: str
    tag: StepTag | None = None

    def __init__(self, tokenizer: Tokenizer, marks: Sequence[str] = ()) -> None:
        self._begins = tokenizer.post_processor
        self.pieces = Pieces(tokenizer, (*self.marks, *marks))
        # entries consist of bytes or characters, and a text has at least as many bytes as characters
        self.longest_token = max(map(len, self.pieces.tokenizer.get_vocab()))

    def tokenize(self, prompt: Prompt) -> tuple[int, ...]:
        """As `Format`."""
        if not isinstance(prompt.content, str):
            unknown = {token for token in set(prompt.content) if self.pieces.tokenizer.id_to_token(token) is None}
            if unknown:
                raise InvalidRequest(f"{len(unknown)} token ids that were sent are not in the model's vocabulary")
            return prompt.content
        tag = self.tag
        first, *others = prompt.content.split(tag.text) if tag and tag.text else [prompt.content]
        ids = list(self._recognising.encode(first, add_special_tokens=prompt.begins).ids)
        for part in others:
            assert tag is not None
            ids += [tag.id, *self._recognising.encode(part, add_special_tokens=False).ids]
        return tuple(ids)

    def at_tags(self, ids: Sequence[int]) -> Encoded:
        """As `Format`."""
        if self.tag is None:
            raise InvalidRequest(f"models of family {self.family} have no step tag to score a prompt at: send messages")
        kept = list(ids)
        if self.tag.id not in kept:
            while kept and not self.pieces.tokenizer.decode(kept[-1:]).strip():  # special tokens are decoded as nothing
                kept.pop()
            if not kept:
                raise InvalidRequest("a prompt has no text")
            kept.append(self.tag.id)
        return Encoded(tuple(kept), tuple(place for place, token in enumerate(kept) if token == self.tag.id))

    def tagged(self, texts: Sequence[str], tag: Sequence[int], begin: Sequence[int] = ()) -> Encoded:
        """The input of the ids `begin`, the first text, and the other texts, which are steps, each followed by a tag at
        whose last id it is scored. Every text is encoded separately."""
        head, *pieces = self.pieces.encode(texts)
        draft = Draft().add([*begin, *head])
        for piece in pieces:
            draft.step(piece, tag)
        return draft.done()

    @cached_property
    def _recognising(self) -> Tokenizer:
        """A tokenizer for prompts: special tokens in a text are what they say."""
        copy = Tokenizer.from_str(self.pieces.tokenizer.to_str())
        copy.post_processor = self._begins
        return copy

    def text(self, encoded: Encoded) -> str:
        """The text that the ids encode."""
        return str(self.pieces.tokenizer.decode(list(encoded.ids), skip_special_tokens=False))

    def tokens(self, encoded: Encoded) -> list[str]:
        """Each id's vocabulary entry."""
        return [self.pieces.tokenizer.id_to_token(token) or "" for token in encoded.ids]


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

    def step(self, ids: Sequence[int], tag: Sequence[int]) -> Self:
        """Appends a step and the ids of a tag, at the last of which it is scored."""
        return self.add([*ids, *tag], [len(ids) + len(tag) - 1])

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


def parts_of(text: str, tokenizer: Tokenizer) -> list[str]:
    """A template's text, parted at the vocabulary's added tokens: text and tokens by turns, from text to text, which
    may be empty."""
    names = sorted((token.content for token in tokenizer.get_added_tokens_decoder().values()), key=len, reverse=True)
    return re.split(f"({'|'.join(map(re.escape, names))})", text) if names else [text]


def token_id(tokenizer: Tokenizer, token: str) -> int:
    """The id of a vocabulary entry; raises `ModelInvalid` if there is none."""
    found = tokenizer.token_to_id(token)
    if found is None:
        raise ModelInvalid(f"the tokenizer has no token {token!r}, which this family's input is made with")
    return int(found)
