"""What replies that state no answer are, and how the answers of each kind are compared.

A kind is a row of `KINDS`. It holds where more than half of all replies are of it, so that one label between essays is
none; the first that holds is taken.
"""

import json
import re
import unicodedata
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from pydantic_core import from_json

from unprm.answers.mathtext.units import unit_name
from unprm.answers.tables import pattern, words
from unprm.errors import attempt
from unprm.steps import separated
from unprm.types import ComparedAs

T = TypeVar("T")

MAX_BYTES, MAX_WORDS = 60, 8
"""Of a short text; docs/answers.md says on what they were measured."""
_INDEX = re.compile("0|[1-9][0-9]*")
"""Of a list's item in a JSON pointer."""
_LONGER = 8
"""Times the length of a reply that its canonical form may have: 1e20, say, becomes 21 figures."""
_OPENS = re.compile(r"[{\[]")
_TRIED = 8
"""How many brackets of a reply may open JSON."""
_SPELLED = json.JSONEncoder(ensure_ascii=False).encode
_MARKS = " \t*_`\"'“”‘’«»"
CLAUSE = words("clause")


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of answers. `key`: of an answer, equal for equal answers; None for one that is compared as mathematics.
    `read`: the answer of each reply, None of one of another kind; None as a whole for a kind that is not read here.
    `joined`: whether answers that other replies state are compared like these."""

    key: Callable[[str], str | None]
    read: Callable[[Sequence[str]], Iterator[str | None]] | None = None
    joined: bool = False


def read_kind(
    texts: Sequence[str], stated: Sequence[bool], replies: int
) -> Generator[None, None, tuple[ComparedAs, list[str | None]] | None]:
    """The kind of these replies, and the answers of those that state none; None if they are of none. Yields after each
    reading of a reply. `stated`: whether each states one; `replies`: the number of all."""
    outside = yield from pausing(attempt(partial(_said, text), "") for text in texts)
    for name, kind in KINDS.items():
        found = (yield from pausing(kind.read(outside))) if kind.read else []
        of_kind = sum(each is not None for each in found)
        answers = [None if states else each for each, states in zip(found, stated, strict=bool(found))]
        if 2 * of_kind > replies and any(answers):
            return name, answers
    return None


def _said(text: str) -> str:
    return separated(text)[0].strip()


def pausing(values: Iterable[T]) -> Generator[None, None, list[T]]:
    """The values; yields after each."""
    found = []
    for value in values:
        found.append(value)
        yield
    return found


def _each(read: Callable[[str], str | None], replies: Iterable[str]) -> Iterator[str | None]:
    return (attempt(partial(read, reply), None) for reply in replies)


class Schema:
    """A JSON schema, `root`, as far as it says which lists are unordered. Each reference in it is looked up once, so
    that the cost of all look-ups is linear in its length, however large the answers and however many."""

    def __init__(self, root: Any = None) -> None:
        self.root = root
        self._targets: dict[str, Any] = {}

    def below(self, schema: Any, name: str | None) -> Any:
        """The part of the schema for the value of that name, or for a list's items; a reference is followed once."""
        found = schema.get("items" if name is None else "properties") if isinstance(schema, dict) else None
        if name is not None:
            found = found.get(name) if isinstance(found, dict) else None
        reference = found.get("$ref") if isinstance(found, dict) else None
        if not isinstance(reference, str) or not reference.startswith("#/"):
            return found
        if reference not in self._targets:
            target = self.root
            try:
                for name in _names(reference):
                    target = _named(target, name)
            except (LookupError, ValueError):
                target = found
            self._targets[reference] = target
        return self._targets[reference]


def json_answer(
    reply: str, schema: Schema | None = None, vote_on: Sequence[str] = (), *, inside: bool = False
) -> str | None:
    """The JSON object or array that a reply is, also as a block of code, in canonical form; `inside`: or the longest
    that it has. With `vote_on`, JSON pointers (RFC 6901): the value that the only one points to, or an object of values
    by pointer. None of what is no such JSON, lacks one of these values, or would be `_LONGER` times as long as the
    reply. `schema`: of the JSON."""
    value, schema = json_value(reply), schema or Schema()
    if inside and not isinstance(value, dict | list):
        value = json_value(_json_within(reply))
    if not isinstance(value, dict | list):
        return None
    if not vote_on:
        return _written(value, schema, schema.root)
    picked: dict[str, str] = {}
    try:
        for pointer in vote_on:
            picked[pointer] = _picked(value, pointer, schema)
            if sum(map(len, picked.values())) > _LONGER * len(reply):
                return None
    except (ValueError, LookupError):
        return None
    return _object(picked) if len(picked) > 1 else next(iter(picked.values()))


def json_value(reply: str) -> Any:
    """The JSON that a reply is, also as a block of code; None if it is none."""
    block = pattern("block_of_code").fullmatch(reply.strip())
    with suppress(ValueError):
        return from_json(block[1] if block else reply, allow_inf_nan=False)


def _json_within(reply: str) -> str:
    """The longest text of an object or array outside of a reply's thoughts, of those that begin at the first few
    brackets that open one; empty if there is none. Linear in the length."""
    text, found, start = separated(reply)[0], "", 0
    for _ in range(_TRIED):
        if (bracket := _OPENS.search(text, start)) is None:
            break
        start = bracket.end()
        with suppress(ValueError, RecursionError):
            start = json.JSONDecoder().raw_decode(text, bracket.start())[1]
            found = max(found, text[bracket.start() : start], key=len)
    return found


def canonical_json(value: Any) -> str:
    """One text for equal values, at most `_LONGER` times as long as they were: names in order, no white space, whole
    numbers without a fraction, and from 1e21 on with an exponent (as RFC 8785)."""
    return _written(value, Schema(), None)


def _written(value: Any, schema: Schema, at: Any) -> str:
    """The canonical text of a value; the items of lists that their schema, `at`, calls unique are in order."""
    if isinstance(value, dict):
        return _object({name: _written(each, schema, schema.below(at, name)) for name, each in value.items()})
    if isinstance(value, list):
        of_items = schema.below(at, None)
        items = [_written(each, schema, of_items) for each in value]
        if isinstance(at, dict) and at.get("uniqueItems") is True:
            items.sort()
        return f"[{','.join(items)}]"
    return _number(value) if type(value) in (int, float) else _SPELLED(value)


def _object(texts: Mapping[str, str]) -> str:
    return "{" + ",".join(f"{_SPELLED(name)}:{text}" for name, text in sorted(texts.items())) + "}"


def _number(value: float) -> str:
    if abs(value) >= 1e21:
        with suppress(OverflowError):
            if (rounded := float(value)) == value:
                return repr(rounded)
    return str(int(value)) if int(value) == value else repr(value)


def _picked(value: Any, pointer: str, schema: Schema) -> str:
    """The canonical text of what a pointer points to; raises `LookupError` or `ValueError` if there is nothing."""
    at = schema.root
    for name in _names(pointer):
        at = schema.below(at, name if isinstance(value, dict) else None)
        value = _named(value, name)
    return _written(value, schema, at)


def _names(pointer: str) -> list[str]:
    return [part.replace("~1", "/").replace("~0", "~") for part in pointer.split("/")[1:]]


def _named(value: Any, name: str) -> Any:
    """The value of that name, or the item of that number. Raises `LookupError` or `ValueError`."""
    if isinstance(value, dict):
        return value[name]
    if not isinstance(value, list) or not _INDEX.fullmatch(name):
        raise LookupError(name)
    return value[int(name)]


def _short_texts(replies: Sequence[str]) -> Iterator[str | None]:
    """Replies that are themselves an answer, without marks around them, and without its name (``Label: spam``) if all
    that have one have the same."""
    named = [pattern("name_before_value").match(reply) for reply in replies]
    one_name = len({name[1].casefold() for name in named if name}) == 1
    pairs = zip(replies, named, strict=True)
    return _each(short_text, (reply[name.end() :] if name and one_name else reply for reply, name in pairs))


def short_text(reply: str) -> str | None:
    """A word, name, number, date or list, or the yes or no with which a sentence begins; None of what is longer, or
    another sentence."""
    if len(reply.encode("utf-8", "surrogatepass")) > 4 * MAX_BYTES:
        return None
    if begun := pattern("yes_or_no").match(reply):
        return begun[1]
    items = pattern("listed").sub("", reply).splitlines() if pattern("listed").match(reply) else [reply]
    text = ", ".join(item.strip() for item in items if item.strip()).strip(_MARKS).rstrip(".!,;。！" + _MARKS)
    said = [re.sub(r"[^\w'’]", "", word).casefold().replace("’", "'") for word in text.split()]
    if not any(said) or len(said) > MAX_WORDS or len(text.encode("utf-8", "surrogatepass")) > MAX_BYTES:
        return None
    return None if pattern("no_short_text").search(text) or not CLAUSE.isdisjoint(said[:-1]) else text


def _words_key(answer: str) -> str | None:
    """The words of an answer, whatever their case, punctuation and first article; None of a quantity, a formula or
    a long text."""
    if len(answer) > 4 * MAX_BYTES:
        return None
    plain = unicodedata.normalize("NFKC", answer).casefold()
    counted = pattern("counted_words").match(plain)
    if pattern("formula_sign").search(plain):
        return None
    if counted and sum(unit_name(word) is None for word in counted["words"].split()) < 2:
        return None
    return " ".join(pattern("first_article").sub("", pattern("punctuation").sub(" ", plain)).split()) or None


KINDS: dict[ComparedAs, Kind] = {
    "json": Kind(key=str, read=partial(_each, json_answer)),
    "stated": Kind(key=lambda answer: None),
    "short_text": Kind(key=_words_key, read=_short_texts, joined=True),
    "tool_call": Kind(key=str),
    "none": Kind(key=str),
}
"""By their name in a response."""
