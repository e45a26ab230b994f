"""The canonical form of an answer: rewrites of its LaTeX that don't change what it means."""

import re
import unicodedata
from collections.abc import Sequence
from itertools import pairwise

from unprm.answers.mathtext.measures import read_measures
from unprm.answers.mathtext.prose import named, option_letter, split_name, unwrap, with_digits, without_builder
from unprm.answers.mathtext.tokens import CLOSING, OPENING, is_letters, is_number, is_text, render, tokenise
from unprm.answers.mathtext.units import unit_name
from unprm.answers.mathtext.words import is_word, words_of
from unprm.answers.moments import moment_or_formula
from unprm.answers.tables import compiled, pattern, table

MAX_REWRITTEN = 2000  # characters; a longer answer keeps its spelling
_ROUNDS = 8
_SPELLINGS: dict[str, str] = table("latex")["spellings"]
_PHRASES: dict[str, str] = table("words")["phrases"]
_INVISIBLE = dict.fromkeys((0xAD, *range(0x200B, 0x2010), *range(0x2060, 0x2065), 0xFEFF, 0xFE0F), "")
_CHARACTERS = str.maketrans(table("notations")["characters"]) | _INVISIBLE
_SCRIPT = re.compile("[⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻ⁿ]+|([₀₁₂₃₄₅₆₇₈₉₊₋]+)")
_REWRITES = [
    (row.get("has", ""), row.get("unless", "\0"), compiled(row["of"]), row["to"])
    for row in table("notations")["rewrites"]
]


def canonical(answer: str) -> str:
    """The canonical form of an answer, the same for spellings that differ in layout only: ``\\frac{1}{2}`` for
    ``$\\dfrac12$`` and ``½``. Idempotent, linear in the length; a long answer keeps its spelling except for blanks."""
    collapsed = " ".join(answer.split())
    text = moment_or_formula(collapsed.strip("$ .")) or collapsed
    for _ in range(_ROUNDS):
        plain = plain_characters(text) if len(text) <= MAX_REWRITTEN else text
        if len(plain) > MAX_REWRITTEN:
            return text
        tokens = join_thousands(_spelled(tokenise(plain_notation(unwrap(plain)))))
        name, tokens = split_name(without_builder(_drop_blanks(tokens)))
        tokens = read_measures(_one_constant(tokens), named=bool(name))
        solid = [token for token in tokens if token != " "]
        rewritten = named(name, _plain_words(tokens) or pattern("quantifier").sub("", render(solid)))
        if rewritten == text or pattern("plain_rational").fullmatch(rewritten):
            return rewritten
        text = rewritten
    return collapsed  # rewriting does not converge: keep the original spelling


def _one_constant(tokens: list[str]) -> list[str]:
    """Calls a constant of integration C, whatever its letter: ``x^2+c``."""
    if tokens[-1:] in (["c"], ["K"]) and tokens[-2:-1] == ["+"] and tokens.count(tokens[-1]) == 1:
        return [*tokens[:-1], "C"] if any(map(is_letters, tokens[:-1])) else tokens
    return tokens


def _spelled(tokens: Sequence[str]) -> list[str]:
    spelled: list[str] = []
    for token in tokens:
        token = _SPELLINGS.get(token, token)
        content = token[token.find("{") + 1 : -1]
        if is_text(token):
            spelled += _upright_unit(content, spelled) or _spelled_text(content)
        elif token.startswith("\\mathbf{"):  # i, j, k are unit vectors; other bold letters are treated as plain
            content = content.strip()
            spelled += [f"\\hat{content}"] if content in ("i", "j", "k") else _spelled_text(content)
        elif token in ("am", "pm") and ":" in spelled:
            spelled.append(f"\\text{{{token}}}")
        elif token:
            spelled.append(token)
    stray = spelled.count("}") - spelled.count("{")
    while stray > 0 and spelled[-1] in ("}", " "):
        stray -= spelled.pop() == "}"
    return spelled


def _upright_unit(content: str, before: Sequence[str]) -> list[str]:
    """Upright letters after a value, as a unit: ``3\\mathrm{m/s}``."""
    content = " ".join(re.sub(r"\\[,;:! ]|[~{}]", " ", content).split())
    if before and not is_letters(before[-1]) and pattern("upright_unit").fullmatch(content):
        return ["\\text{" + re.sub(r" ?([/^*-]) ?", r"\1", content).replace(" ", "*") + "}"]
    return []


def _spelled_text(content: str) -> list[str]:
    words = words_of(content)
    if "".join(words) in ("am", "pm"):
        return ["\\text{" + "".join(words) + "}"]
    if words in (["and"], ["or"]):
        return [",", " "] if words == ["and"] else ["\\lor"]
    if words[-1:] in (["and"], ["or"]) and (head := pattern("last_word").sub("", content)):
        return [*_spelled_text(head), *_spelled_text(words[-1])]
    plain = option_letter(" ".join(content.split()))
    if not any(is_word(word) or (len(word) > 1 and not word.isupper()) for word in re.findall("[A-Za-z]+", plain)):
        return _spelled(tokenise(plain))  # (C), 13, CBAD, A,B: mathematics
    if any(char.isdigit() for char in plain):
        return [" ", *_spelled(tokenise(plain)), " "]
    # in lower case, except where that is another unit: MeV
    lower = re.sub("[A-Za-z]+", lambda w: w[0].lower() if unit_name(w[0]) == unit_name(w[0].lower()) else w[0], plain)
    return ["\\text{" + lower.rstrip(" .") + "}"]


def join_thousands(tokens: list[str]) -> list[str]:
    """1,234 outside of brackets is a number, and so is 1 234; (1,234) is a pair, and so is 1, 234; (1,050) is none."""
    joined: list[str] = []
    depth = at = 0
    while at < len(tokens):
        end = at + 1
        if is_number(tokens[at]):
            separator = tokens[end] if tokens[end : end + 1] in ([","], [" "]) else ""
            while separator and tokens[end : end + 1] == [separator] and is_number("".join(tokens[end + 1 : end + 2])):
                end += 2
            groups = tokens[at:end:2]
            padded = any(group[0] == "0" for group in groups[1:])
            if pattern("thousands").fullmatch(",".join(groups)) and (separator == " " or padded or not depth):
                joined.append(_trimmed("".join(groups)))
            else:
                joined += map(_trimmed, tokens[at:end])
        else:
            depth += (tokens[at] in OPENING) - (tokens[at] in CLOSING)
            joined.append(tokens[at])
        at = end
    return joined


def _trimmed(token: str) -> str:
    """A literal without superfluous zeros: 007.50 is 7.5."""
    if not is_number(token) or not token.replace(".", "", 1).isdigit():
        return token
    whole, _, decimals = token.partition(".")
    decimals = decimals.rstrip("0")
    return (whole.lstrip("0") or "0") + ("." + decimals if decimals else "")


def _drop_blanks(tokens: Sequence[str]) -> list[str]:
    """Keeps only the blanks that change what is read, before letters and between numbers, and one of several commas."""
    kept: list[str] = []
    for token, following in pairwise([*tokens, ""]):
        last = kept[-1] if kept else " "
        if token == " " and (last == " " or not (is_letters(following) or (is_number(last) and is_number(following)))):
            continue
        if token not in (",", "\\lor") or "".join(kept[-2:]).strip()[-1:] != ",":
            kept.append(token)
    return kept


def _plain_words(tokens: Sequence[str]) -> str:
    """The answer in lower case if it consists only of words, else an empty text."""
    if not tokens or not all(is_text(token) or is_letters(token) or token in (" ", "-", "'") for token in tokens):
        return ""
    if not any(is_text(token) or is_word(token) for token in tokens):
        return ""
    plain = "".join(token[6:-1] if is_text(token) else token for token in tokens)
    words = " ".join(plain.lower().split())
    for phrase, meaning in _PHRASES.items():
        if compiled(phrase).fullmatch(words):
            return meaning
    if article := pattern("beside_a_word").match(words):
        words = words[article.end() :]
    return words if all(is_word(word) or len(word) < 3 for word in words.split()) else "\\text{" + words + "}"


def plain_characters(text: str) -> str:
    """The text with known symbols in LaTeX, fullwidth digits and the like in NFKC, and single blanks."""
    text = _plain(text) if not text.isascii() else text.replace('"', "")
    return " ".join(re.sub(r"\.\.\.+|\. \. \.", r"\\ldots ", text).split())


def _plain(text: str) -> str:
    text = _SCRIPT.sub(
        lambda run: ("_{" if run[1] else "^{") + unicodedata.normalize("NFKC", run[0]) + "}",
        with_digits(re.sub("[µμ](?=[A-Za-z]{1,3}(?![A-Za-z]))", "micro", text)),
    )
    # Twice: a fullwidth form becomes its sign only after NFKC, and NFKC would flatten ½.
    return unicodedata.normalize("NFKC", text.translate(_CHARACTERS)).translate(_CHARACTERS)


def plain_notation(text: str) -> str:
    """The text with every notation of the table in plain LaTeX, and numbers in words in figures; a scale like "million"
    stays."""
    text = pattern("number_in_words").sub(lambda found: _figures(found[0]), text)
    for has, unless, notation, plain in _REWRITES:
        if has in text and unless not in text and notation.search(text):  # a template costs more than a search
            text = notation.sub(plain, text)
    return text


def _figures(words: str) -> str:
    """The figures of words that are a single number below 10,000; other words unchanged."""
    total, free = 0, 10**3  # what may follow is less than `free`
    for word in re.split(r"[\s-]+(?:and\s+)?", words.lower()):
        if word == "hundred":
            if not 0 < total < 100:
                return words
            total, free = 100 * total, 100
        elif (value := table("words")["numbers"][word]) < free:
            total += value
            free = 10 if value >= 20 and value % 10 == 0 else 0
        else:
            return words
    return str(total)
