"""The letters of a multiple-choice question: A to J, in a statement or named in a text."""

import re

_OPTION = r"(?:options?|choices?|answer|letter|opci[óo]n|opção|opzione|optie|вариант|选项|選項|الخيار|विकल्प|বিকল্প)"
_WRAPPER = (
    r"(?:\\(?:text\w*|math\w+|boxed|fbox|mbox|bf|rm|[lL]arge|[hH]uge|[,;!: ])|\\[(\[]|[\s{}(\[$*_\"'`:：（【「<])"
)
# Not a name in a formula, nor the first letter of a word.
_ALONE = r"(?![A-Za-zÀ-ɏ0-9_'’+/^=<]|-[A-Za-z0-9]|\*[^*\s])(?!\s+(?:[+*/^=<>]|-\s?[A-Z]\b))"
# After A or I: an English word, not an option.
_NO_ARTICLE = r"(?!(?<=[AIai])\s+(?!is\b|because\b|since\b|as\b|and\b|or\b|are\b)[a-z])"
_STATED = re.compile(
    rf"""
    (?: not\s[^\n.]{{1,40}}?\bbut\s )? (?: {_WRAPPER} | (?:\w+ly|most\slikely)\s+(?!\w\w) | (?:[^\W\d_]{{1,3}}\s+)?{_OPTION}\b )*
    (?: (?P<several> (?-i:[A-J]) (?: [\s*)]*(?:,|&|\band\b|,\s?and\b)[\s(*]*(?-i:[A-J])\b )+ | (?-i:[A-J]){{2,10}} )
        (?= [^\w\n]* (?: $ | \n | \bare\b ) )
      | (?P<one> [A-J]|[أبجدঅবডঢ](?!\w) ) {_ALONE} {_NO_ARTICLE} )
    """,
    re.IGNORECASE | re.VERBOSE,
)
_OTHER_LETTERS = str.maketrans("أبجدঅবডঢ", "ABCDABCD")
_LETTER = rf"{_WRAPPER}{{0,12}}(?-i:([A-J])){_ALONE}{_NO_ARTICLE}(?!\W{{0,9}}(?:is|are)\s(?:\w+ly\s)?(?:not|wrong|incorrect|false))"
_CHOSEN = re.compile(
    rf"""
    (?: \b (?: is|be|it['’]s|leav(?:es|ing)|pick|choose|chose|select|selected|with ) \b (?:\s(?:the\s)?{_OPTION}\b)?
      | [选選] (?:[择擇项項]|为|是)? ) {_LETTER}
    | (?<![\w'’]) (?-i:([A-HJ])) (?:[)*.:](?:(?!\bis\b)[^.\n(]){{0,60}}?)? \s+ is \s (?:\w+ly\s)? (?:the\s)? (?:\w+\s)?
      (?:correct|right|true|best|answer) \b
    """,
    re.IGNORECASE | re.VERBOSE,
)
_LINE = re.compile(r"^[\s(\[$*_\"'`{]{0,9}(?:\\\w+\{)?([A-Ja-j])(?:[)\].:][^\n]*|[\s)\]$*_\"'`}]*)$", re.MULTILINE)
_NAMED = re.compile(rf"\b{_OPTION}\s{{0,8}}(?:is\s{{1,8}})?:?(?:{_LETTER}|([a-j])$)|\(([A-Ja-j])\)", re.IGNORECASE)


def stated_letters(statement: str) -> str | None:
    """The letters with which a statement begins, in alphabetical order: ``(B) Paris`` gives B, ``A and D`` AD,
    ``CCCCC`` C."""
    found = _STATED.match(statement)
    if found is None:
        return None
    if found["one"]:
        return found["one"].translate(_OTHER_LETTERS).upper()
    letters = sorted(re.findall("[A-J]", found["several"]))
    is_word = found["several"].isalpha() and "".join(letters) != found["several"]
    return None if is_word else "".join(dict.fromkeys(letters))


def named_letter(text: str) -> str | None:
    """The last letter that the text chooses ("it must be B", "B is correct"); else that of its first or last line, if no
    line begins with another one (``B) Paris``); else the option that it names last."""
    text = text.strip()
    lines = [line.span() + (line[1],) for line in _LINE.finditer(text)]
    chosen = [letter for found in _CHOSEN.finditer(text) for letter in found.groups() if letter]
    if not chosen and len({letter.upper() for _, _, letter in lines}) == 1 and (lines[0][0] == 0 or lines[-1][1] == len(text)):
        chosen = [lines[0][2]]
    named = chosen or [letter for found in _NAMED.finditer(text) for letter in found.groups() if letter]
    return named[-1].upper() if named else None
