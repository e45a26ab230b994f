"""The value in what follows "the answer is": without fences, quotes, and the prose after it."""

import re

from unprm.answers.mathtext.leading import NUMBER, value_end

MAX_CUT = 2000  # characters; a longer text is not a value followed by prose
_OPENING = re.compile(
    r"(?:\n[^\S\n]*[-•*][^\S\n]+|`{3}[a-z]{0,12}\n|[\s:：=>`}]|\*{2,3}|\*(?=\S)|__|\\?[\"“]|['‘](?=[\w$\\]))+"
)
_FORMULA = re.compile(
    r"\$\$([^$]+)\$\$|\\\[(.+?)\\\]|\\\((.+?)\\\)|\$(?!\s)([^$]+)(?<!\s)\$(?![0-9])|\$(\s[^$]+\s)\$", re.DOTALL
)
_UNFINISHED = re.compile(r"(?:\$\$|\\\[|\\\(|\$(?=[A-Za-z\\])|[\s*_`])+")
# Not the period of p.m., and none of an ellipsis.
_END = re.compile(
    r"(?<!\.)(?<![ap]\.m)\.(?=[\s*_\"'”’`)\]}]|\\?$)|\n|(?<=\S)\*\*(?=[\s.,;:!?)\]\"']|$)|`|(?<=[^\d\\])\""
)
_BOLD = re.compile(r"(?<=\s)\*\*(?=\S)")
_SAYS_SOMETHING = re.compile(r"[^\W_]|[∅∞]|\{\s*\\?\}")
_APPROXIMATION = re.compile(
    r"(?:(?:approximately|about|roughly|around|exactly|only|just|still|simply|equal to|a total of)\s+|[≈~]\s?)+"
    r"(?=[-+−]?(?:\\?\$|[€£¥₹])?[0-9.])",
    re.IGNORECASE,
)
# "Jim is 14 years old", "Bobby has 60 games": a sentence whose first number follows its verb.
_VERB = re.compile(
    r"[^0-9]*?\b(?:is|are|was|were|be|equals?|has|have|had|contains?|costs?|weighs?|takes?|took|needs?|makes?|made"
    r"|earns?|earned|spends?|spent|sells?|sold|saves?|saved)\s+(?=[-+−]?(?:\\?\$|[€£¥₹])?[0-9])",
    re.IGNORECASE,
)
_NEGATION = re.compile(r"\b(?:not|never|no|nor)\b|n['’]t\b", re.IGNORECASE)


def stated_value(text: str) -> str | None:
    """The value that a statement begins with, as it is written there; None if it says nothing.

    Delimiters of display mathematics, code, bold and quotes are removed, also if the value is on the next line. A
    formula ends at its delimiter, a number where prose continues, either with its unit if one follows; a number gets a
    blank before its unit. A second quantity beside the first keeps the sentence whole. Linear in the length.
    """
    opening = _OPENING.match(text)
    rest = text[opening.end() :] if opening else text
    formula = _FORMULA.match(rest)
    if formula is None and (unfinished := _UNFINISHED.match(rest)):
        rest = rest[unfinished.end() :]
    end = _END.search(rest, formula.end() if formula else 0)
    sentence = rest[: end.start() if end else len(rest)].rstrip(' \t\r\n*_`",;:”\\')
    value = sentence if len(sentence) > MAX_CUT else _value(_BOLD.sub("", sentence), formula)
    return value if _SAYS_SOMETHING.search(value) else None


def _value(sentence: str, formula: re.Match[str] | None) -> str:
    if formula:
        inside = next(group for group in formula.groups() if group is not None).strip().removesuffix(".")
        end = value_end(sentence, formula.end(), is_money=False)
        return inside if end == formula.end() else sentence[:end]
    start = approximation.end() if (approximation := _APPROXIMATION.match(sentence)) else 0
    verb = _VERB.match(sentence, start)
    if verb and not _NEGATION.search(verb[0]):
        start = verb.end()
    number = NUMBER.match(sentence, start)
    if number is None:
        return sentence
    end = value_end(sentence, number.end(), is_money=bool(number["currency"]))
    if end is None:
        return sentence
    unit = sentence[number.end() : end]
    # a letter that touches a number is read as a factor of it
    return sentence[start : number.end()] + (" " if unit[:1].isalpha() else "") + unit
