"""The letters of a multiple-choice question: A to J, in a statement or named in a text."""

import re

_OPTION = (
    r"(?:options?|choices?|answers?|letter|opci[óo]n|opção|opzione|optie|вариант|选项|選項|選択肢|الخيار|विकल्प|বিকল্প)"
)
_WRAPPER = (
    r"(?:\\(?:text\w*|math\w+|boxed|fbox|mbox|bf|rm|[lL]arge|[hH]uge|[,;!: ])|\\[(\[]|[\s{}(\[$*_\"'‘“`:：（【「<])"
)
# After a letter: not a formula, nor the rest of a word; after A and I no English word.
_ALONE = r"(?![A-Za-zÀ-ɏ0-9_+/^=<]|['’]\w|-[A-Za-z0-9]|\*[^*\s])(?!\s+(?:[+*/^=<>]|-\s?[A-Z]\b))"
_NO_ARTICLE = r"(?!(?<=[AIai])\s+(?!is\b|because\b|since\b|as\b|and\b|or\b|are\b)[a-z])"
_STATED = re.compile(
    rf"""
    (?: {_WRAPPER} | not\s[^\n.]{{1,40}}?\bbut\s | (?:\w{{1,20}}ly|most\slikely)\s+(?!\w\w)
      | (?:[^\W\d_]{{1,3}}\s+)?{_OPTION}\b )*
    (?: (?P<several> (?-i:[A-J]) (?: (?:\\text\w*\{{|[\s{{}}()*,;&]|\band\b)+(?-i:[A-J])(?![A-Za-z]) )+
          | (?-i:[A-J]){{2,10}} ) (?= [^\w\n]* (?: $ | \n | \bare\b ) )
      | (?P<one> [A-J] | [أبجدঅবডঢ](?!\w) ) {_ALONE} {_NO_ARTICLE} )
    """,
    re.IGNORECASE | re.VERBOSE,
)
_OTHER_LETTERS = str.maketrans("أبجدঅবডঢ", "ABCDABCD")
_REACH = 80  # characters between a verb and the letters it chooses
_CHOSEN = re.compile(
    r"""
    \b (?i: is|are|be|it['’]s|leav(?:es|ing)|pick|choose|chose|select|selected|with|ist|es|est|è|é ) \b
    | [选選] (?:[择擇項项]|为|是)*
    | \b (?i: so|hence|thus|therefore|think|say|only ) \b (?=,?\s\W*[A-J]\W*(?:[.!;,]|$))
    | (?<![\w'’]) (?= [A-HJ] (?:[)*.:](?:(?!\bis\b)[^.\n(]){0,60}?)?
        (?: \s+ (?:is|seems|would\sbe|must\sbe) \s (?:\w+ly\s)? (?:the\s)? (?:\w+\s)?
            (?:correct|right|true|best|answer) \b
        | [项項]?[是]?正[确確] | \sremains\b ) )
    """,
    re.VERBOSE,
)
_LINE = re.compile(
    r"^[\s(\[$*_\"'`{]{0,9}(?:\\\w+\{)?([A-Ja-j])\1*(?:(?:[)\].:]|\s[-–—]\s)[^\n]*|[\s)\]$*_\"'`}]*)$", re.MULTILINE
)
_NAMED = re.compile(
    rf"\b(?:{_OPTION}(?:\s(?:is|are))?|(?:correct|response|solution)\s*:)|(?=\([A-Ja-j]\))", re.IGNORECASE
)
# The mark of an option in a question: at the start of a line, or in brackets elsewhere.
_MARK = re.compile(
    r"""
    (?: (?P<line> ^[^\S\n]*(?:[-*•]\s+)? ) | (?<![\w\\^(]) )
    (?: \\\(\s* | \$\s* )? (?: \\text\w*\{ | \\math\w+\{ | \*\* )?
    (?P<open> [(（]? ) (?P<letter> [A-J] ) (?(line) [).:、：．）] | [)）] )
    (?! \s* (?:[,.;)]|\Z|and\b|or\b) )
    """,
    re.MULTILINE | re.VERBOSE,
)
_REFUSED = re.compile(r"\W{0,9}[A-J]\W{0,9}(?:is|are)\s(?:\w+ly\s)?(?:not|wrong|incorrect|false)\b", re.IGNORECASE)


def lists_options(question: str) -> bool:
    """Whether a question lists options to choose from: three or more, marked A) B) C) or (A) (B) (C), or two at the
    start of lines, where A. and A: are marks too."""
    marks = list(_MARK.finditer(question))
    inline = "".join(mark["letter"] for mark in marks)
    lines = "".join(mark["letter"] for mark in marks if mark["line"] is not None)
    return "ABC" in inline or "AB" in lines


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
    """The last letters that the text chooses ("it must be B", "B is correct"); else the letter of its first or last
    line, if no line begins with another one (``B) Paris``); else the option that it names last."""
    text = text.strip()
    if chosen := _last_letters(text, _CHOSEN, capital=True):
        return chosen
    lines = list(_LINE.finditer(text))
    if len({line[1].upper() for line in lines}) == 1 and (lines[0].start() == 0 or lines[-1].end() == len(text)):
        return lines[0][1].upper()
    return _last_letters(text, _NAMED)


def _last_letters(text: str, intro: re.Pattern[str], *, capital: bool = False) -> str | None:
    last = None
    for found in intro.finditer(text):
        said = text[found.end() : found.end() + _REACH]
        letters = stated_letters(said)
        if letters and not _REFUSED.match(said) and not (capital and letters[0] not in said):
            last = letters
    return last
