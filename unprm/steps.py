"""From the text of a solution to its steps and back.

What a model thinks before it answers, in tags such as ``<think>``, ``[THINK]`` and ``<reasoning>``, or in gpt-oss's
channels, is no step, and states an answer only where nothing else does.
"""

import math
import re
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice, pairwise
from statistics import fmean

from unprm.types import Aggregate, Combination, Split, StepTag

TextSpan = tuple[int, int]
"""A position in a text: `(start, end)` in characters."""
Decode = Callable[[Sequence[int]], str]
"""From token ids to their text."""
THRESHOLD = 0.5
"""Default threshold: a step that scores below it is an error."""
_THOUGHT = re.compile(
    r"""
    [<\[◁] (?:
      \|? (?P<closes> /|end_ )? \|? [\w:]{0,12}?
        (?:think|thought|reason|reflect|scratchpad|monologue|rationale|analysis|cot) [\w ]{0,12} \|? [>\]▷]
      | \|channel\|> (?: analysis | commentary | (?P<answers>final) )
    )
    """,
    re.VERBOSE | re.IGNORECASE,
)
_BLANK_LINE = re.compile(r"\n[^\S\n]*\n")
_LINE_END = re.compile(r"\n")
_STEP_LINE = re.compile(r"^(?=[^\S\n]*(?:[#*]{1,4}[^\S\n]*)?Step[^\S\n]*\d)", re.MULTILINE | re.IGNORECASE)
_CUTS = {"paragraph": _BLANK_LINE, "step": _STEP_LINE, "line": _LINE_END}
_NUMBERED = re.compile(r"\s*Step\s*\d+\s*:", re.IGNORECASE)
_NO_STEP = re.compile(r"(?:-{3,}|\*{3,}|_{3,}|\\[\[\]])")
# blocks that are never split: code fences, display mathematics, environments
_FENCE = re.compile(r"^[ \t]{0,12}(?P<fence>`{3,}|~{3,})[^\S\n]*(?P<info>[^\n`]*)$", re.MULTILINE)
_BRACKET = re.compile(r"(?<!\\)\\[\[\]]")
_DOLLARS = re.compile(r"(?P<alone>^[ \t]{0,12}\$\$[ \t\r]{0,12}$)|\$\$", re.MULTILINE)
_ENVIRONMENT = re.compile(r"\\(?P<edge>begin|end)\s?\{(?P<name>[A-Za-z]{1,32}\*?)\}")
_BLOCK = re.compile(r"```|~~~|\\[\[\]]|\$\$|\\begin")
"""In a text with any block."""
_TEXTUAL = frozenset(["document", "proof", "solution", "enumerate", "itemize"])
"""Environments that contain prose, whose paragraphs are steps."""


def split(text: str, mode: Split = "auto", most: int | None = None, tags: Sequence[StepTag] = ()) -> list[str]:
    """The steps of a solution's text, stripped, none empty, without thoughts; `[]` for blank text. `most`: all steps
    beyond that many are left together as one. `tags`: of the models that read them; a text that has one is split there,
    whatever the mode.

    - ``auto``: split at blank lines; if there are none, before each line that begins with `Step k` (what precedes
      the first is a step of its own); if there is none either, at every line.
    - ``paragraph``, ``step``, ``line``: by the first, the second, or the third of these rules alone.

    No step ends inside a code fence, display mathematics or an environment; a rule (``---``) or a bare delimiter of
    display mathematics is not a step. Linear in the length.
    """
    plain = blanked(text)
    return pieces(plain, spans(plain, mode, most, tags, exact=plain == text))


def spans(
    text: str, mode: Split = "auto", most: int | None = None, tags: Sequence[StepTag] = (), *, exact: bool = False
) -> Iterator[TextSpan]:
    """Positions of the steps of `split` in a text without thoughts: `(start, end)` in characters, without surrounding
    space. `exact`: but with the space between tags that a prompt has too."""
    tag, places = tagged(text, tags)
    if tag is not None:
        found = _between(places, text, strip=not (exact and tag.apart))
    else:
        whole = _blocks(text)
        cut = _auto(text, whole) if mode == "auto" else _outside(_CUTS[mode], text, whole)
        found = ((start, end) for start, end in cut if not _NO_STEP.fullmatch(text, start, end))
    yield from islice(found, most)
    yield from ((start, len(text.rstrip())) for start, _ in islice(found, 1))


def tagged(text: str, tags: Sequence[StepTag]) -> tuple[StepTag | None, list[TextSpan]]:
    """The first of the tags that the text has, and its positions; none within a word, as ş in Turkish or " ки" in
    Russian is: a tag of letters after another letter or before a small one."""
    for tag in tags:
        starts, ends = tag.text[:1].isalpha(), tag.text[-1:].isalpha()
        places = [
            (start, end)
            for start, end in (match.span() for match in re.finditer(re.escape(tag.text), text))
            if not (starts and (before := text[start - 1 : start]).isalpha() and before != tag.text[-1])
            and not (ends and (after := text[end : end + 1]).islower() and after != tag.text[0])
        ]
        if places:
            return tag, places
    return None, []


def untagged(text: str, tags: Sequence[StepTag]) -> str:
    """The text with a line end in place of each of its tags."""
    edges = [0, *(edge for place in tagged(text, tags)[1] for edge in place), len(text)]
    return "\n".join(text[start:end] for start, end in zip(edges[::2], edges[1::2], strict=True))


def pieces(text: str, spans: Iterable[TextSpan]) -> list[str]:
    """The steps at these positions in the text."""
    return [text[start:end].replace("\r\n", "\n") for start, end in spans]


def _auto(text: str, whole: Sequence[TextSpan]) -> Iterator[TextSpan]:
    for cut in (_BLANK_LINE, _STEP_LINE):
        found = _outside(cut, text, whole)
        if len(first := list(islice(found, 2))) > 1:
            return chain(first, found)
    return _outside(_STEP_LINE if _STEP_LINE.match(text.lstrip()) else _LINE_END, text, whole)


def _outside(cut: re.Pattern[str], text: str, whole: Sequence[TextSpan]) -> Iterator[TextSpan]:
    """The spans between the matches of `cut` outside the blocks `whole`, without surrounding space."""
    cuts = (match.span() for match in cut.finditer(text))
    return _between((span for span in cuts if not _is_inside(span[0], whole)), text)


def _between(cuts: Iterable[TextSpan], text: str, *, strip: bool = True) -> Iterator[TextSpan]:
    """The spans between the cuts that are not blank. `strip`: without surrounding space."""
    start = 0
    for end, after in chain(cuts, [(len(text), len(text))]):
        piece = text[start:end]
        if piece.strip():
            yield (start + len(piece) - len(piece.lstrip()), start + len(piece.rstrip())) if strip else (start, end)
        start = after


def _is_inside(position: int, whole: Sequence[TextSpan]) -> bool:
    number = bisect_right(whole, position, key=lambda block: block[0]) - 1
    return number >= 0 and whole[number][0] < position < whole[number][1]


def _blocks(text: str) -> list[TextSpan]:
    """The outermost blocks of a text, with their delimiters, in order. Unclosed ones don't count. Linear time."""
    if not _BLOCK.search(text):
        return []
    fences = list(_fences(text))
    # what looks like mathematics inside a fence is code
    prose = _blanked(text, fences)
    found = sorted([*fences, *_brackets(prose), *_dollars(prose), *_environments(prose)])
    outermost: list[TextSpan] = []
    for start, end in found:
        if outermost and start < outermost[-1][1]:
            outermost[-1] = (outermost[-1][0], max(end, outermost[-1][1]))
        else:
            outermost.append((start, end))
    return outermost


def _blanked(text: str, fences: list[TextSpan]) -> str:
    edges = [0, *(edge for fence in fences for edge in fence), len(text)]
    pieces = [text[start:end] for start, end in pairwise(edges)]
    return "".join(" " * len(piece) if number % 2 else piece for number, piece in enumerate(pieces))


def _fences(text: str) -> Iterator[TextSpan]:
    opening: re.Match[str] | None = None
    for line in _FENCE.finditer(text):
        if opening and not line["info"] and line["fence"].startswith(opening["fence"]):
            yield opening.start(), line.end()
            opening = None
        elif opening is None or line["info"]:
            opening = line


def _brackets(text: str) -> Iterator[TextSpan]:
    start = None
    for bracket in _BRACKET.finditer(text):
        if bracket[0] == "\\[":
            start = bracket.start()
        elif start is not None:
            yield start, bracket.end()
            start = None


def _dollars(text: str) -> Iterator[TextSpan]:
    """Pairs of ``$$``; only two that stand alone on their lines may enclose a blank line, else one of them is stray."""
    opening: re.Match[str] | None = None
    for dollars in _DOLLARS.finditer(text):
        if opening is None:
            opening = dollars
        elif (opening["alone"] and dollars["alone"]) or not _BLANK_LINE.search(text, opening.end(), dollars.start()):
            yield opening.start(), dollars.end()
            opening = None
        else:
            opening = dollars


def _environments(text: str) -> Iterator[TextSpan]:
    starts: defaultdict[str, list[int]] = defaultdict(list)
    for edge in _ENVIRONMENT.finditer(text):
        if edge["name"] in _TEXTUAL:
            continue
        if edge["edge"] == "begin":
            starts[edge["name"]].append(edge.start())
        elif starts[edge["name"]]:
            yield starts[edge["name"]].pop(), edge.end()


def token_ends(text: str, ids: Sequence[int], decode: Decode, mode: Split = "auto") -> list[int]:
    """For each step of the text, the number of tokens up to its end; a token that reaches into the next step belongs to
    the next step. `ids` decode to `text`. The last step ends before the end-of-text token, after which a model would
    start another text."""
    starts = [start for start, _ in spans(blanked(text), mode)]
    if not starts:
        return []
    length = range(len(ids) + 1)
    whole = decode(ids)
    last = len(ids)
    while last and decode(ids[: last - 1]) == whole:  # only special tokens decode to nothing
        last -= 1
    after = (bisect_right(length, start, key=lambda count: len(decode(ids[:count]))) - 1 for start in starts[1:])
    return [*after, last]


def last_tokens(spans: Sequence[TextSpan], offsets: Sequence[TextSpan], length: int) -> list[int]:
    """For each step of a text of `length` characters, the index of the token with its last character. `offsets`: the
    tokens' positions, which begin one after another; those of special tokens are empty. Raises `ValueError` for others,
    and if a step's last character is in no token."""
    if spans and (last := max((end for _, end in offsets), default=0)) > length:
        raise ValueError(f"a token ends at {last}, and the text at {length}: offsets count Unicode code points")
    visible = [index for index, (start, end) in enumerate(offsets) if start < end]
    starts = [offsets[index][0] for index in visible]
    if any(later < earlier for earlier, later in pairwise(starts)):
        raise ValueError("a token begins before the one before it")
    found: list[int] = []
    for number, (_, end) in enumerate(spans):
        before = bisect_left(starts, end)
        if not before or offsets[visible[before - 1]][1] < end:
            raise ValueError(f"no token has the last character of step {number}, which is character {end - 1}")
        found.append(visible[before - 1])
    return found


def join(steps: Sequence[str]) -> str:
    """The steps as one text; `split(join(steps)) == steps` for stripped steps without blank lines and without
    delimiters that are closed in another step."""
    return "\n\n".join(steps)


def numbered(steps: Sequence[str]) -> list[str]:
    """Each step with `Step i: ` before it, unless it already begins with such a number, for models that were trained on
    numbered steps."""
    return [step if _NUMBERED.match(step) else f"Step {number}: {step}" for number, step in enumerate(steps, 1)]


def reward(step_scores: Sequence[float], aggregate: Aggregate = "min") -> float:
    """A solution's reward from its step scores (at least one), all in [0, 1]. Paper, section 5: the minimum."""
    match aggregate:
        case "min":
            return min(step_scores)
        case "last":
            return step_scores[-1]
        case "product":
            return math.prod(step_scores)
        case "mean":
            return math.fsum(step_scores) / len(step_scores)


def combined(
    combination: Combination, correct: bool, step_scores: Sequence[float], reward: float | None, mean_weight: float
) -> float | None:
    """The reward of a solution whose answer is right or not: the outcome alone if no step has a score, unless it takes
    the `process` alone, which is `reward`, that of the step scores. `mean_weight`: the share of their mean."""
    if combination == "process":
        return reward
    if combination == "outcome" or not step_scores:
        return float(correct)
    return correct * min(step_scores) if combination == "outcome_min" else correct + mean_weight * fmean(step_scores)


def first_error(step_scores: Sequence[float | None], threshold: float = THRESHOLD) -> int | None:
    """Index of the first step that scores below the threshold, None if there is none. A step may have no score."""
    return next((index for index, score in enumerate(step_scores) if score is not None and score < threshold), None)


def parts(text: str) -> list[tuple[int, int, bool]]:
    """The text without its tags, in parts `(start, end, whether it is a thought)`. Everything before an unmatched
    closing tag, or after an unmatched opening tag, is a thought. Linear in the length."""
    found: list[tuple[int, int, bool]] = []
    thinking, start, thought_until = False, 0, 0
    for tag in _THOUGHT.finditer(text):
        found.append((start, tag.start(), thinking))
        closes = bool(tag["closes"] or tag["answers"])
        if closes and not thinking:
            thought_until = tag.start()
        thinking, start = not closes, tag.end()
    found.append((start, len(text), thinking))
    return [(begin, end, is_thought or begin < thought_until) for begin, end, is_thought in found]


def separated(text: str) -> tuple[str, str]:
    """The text outside of thoughts, and the text inside."""
    texts: tuple[list[str], list[str]] = [], []
    for start, end, is_thought in parts(text):
        texts[is_thought].append(text[start:end])
    outside, inside = map("\n".join, texts)
    return outside, inside


def blanked(text: str) -> str:
    """The text with each thought and its tags as white space of the same length, which ends a paragraph."""
    pieces, last = list[str](), 0
    for start, end, is_thought in parts(text):
        if not is_thought:
            gap = start - last
            pieces += ("\n\n".ljust(gap)[:gap], text[start:end])
            last = end
    return "".join(pieces).ljust(len(text))
