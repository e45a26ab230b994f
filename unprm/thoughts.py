"""What a model thinks before it answers, in tags such as ``<think>``, ``[THINK]`` and ``<reasoning>``, or in gpt-oss's
channels. Thoughts are no steps of a solution, and state its answer only where nothing else does."""

import re

_TAG = re.compile(
    r"""
    [<\[◁] (?:
      \|? (?P<closes> /|end_ )? \|? [\w:]{0,12}?
        (?:think|thought|reason|reflect|scratchpad|monologue|rationale|analysis|cot) [\w ]{0,12} \|? [>\]▷]
      | \|channel\|> (?: analysis | commentary | (?P<answers>final) )
    )
    """,
    re.VERBOSE | re.IGNORECASE,
)


def parts(text: str) -> list[tuple[int, int, bool]]:
    """The text without its tags, in parts `(start, end, whether it is a thought)`. Everything before an unmatched
    closing tag, or after an unmatched opening tag, is a thought. Linear in the length."""
    found: list[tuple[int, int, bool]] = []
    thinking, start, thought_until = False, 0, 0
    for tag in _TAG.finditer(text):
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
