"""Spellings other than LaTeX's, rewritten to LaTeX: Unicode and typographic characters, and notations of numbers from
code, trade and other languages.
"""

import re
import unicodedata
from collections.abc import Callable
from itertools import groupby

from unprm.answers.mathtext.tokens import unit_token
from unprm.answers.mathtext.units import unit_name

_SUPERSCRIPTS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻ⁿ", "0123456789+-n")
_SUBSCRIPTS = str.maketrans("₀₁₂₃₄₅₆₇₈₉₊₋", "0123456789+-")
_RAISED = re.compile("[⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻ⁿ]+")
_LOWERED = re.compile("[₀₁₂₃₄₅₆₇₈₉₊₋]+")
_GREEK = {
    "α": "alpha", "β": "beta", "γ": "gamma", "δ": "delta", "ε": "epsilon", "ζ": "zeta", "η": "eta",
    "θ": "theta", "ι": "iota", "κ": "kappa", "λ": "lambda", "μ": "mu", "ν": "nu", "ξ": "xi", "π": "pi",
    "ρ": "rho", "σ": "sigma", "τ": "tau", "υ": "upsilon", "φ": "phi", "χ": "chi", "ψ": "psi", "ω": "omega",
    "Γ": "Gamma", "Δ": "Delta", "Θ": "Theta", "Λ": "Lambda", "Ξ": "Xi", "Π": "Pi", "Σ": "Sigma", "Φ": "Phi",
    "Ψ": "Psi", "Ω": "Omega",
}  # fmt: skip
_HALVES = {
    "½": (1, 2), "⅓": (1, 3), "⅔": (2, 3), "¼": (1, 4), "¾": (3, 4), "⅕": (1, 5), "⅖": (2, 5), "⅗": (3, 5),
    "⅘": (4, 5), "⅙": (1, 6), "⅚": (5, 6), "⅛": (1, 8), "⅜": (3, 8), "⅝": (5, 8), "⅞": (7, 8),
}  # fmt: skip
_SIGNS = {
    "−": "-", "–": "-", "—": "-", "‐": "-", "‑": "-", "×": "*", "·": "*", "⋅": "*", "∙": "*", "∗": "*",
    "÷": "/", "∕": "/", "⁄": "/", "∶": ":", "√": "\\sqrt ", "∛": "\\sqrt[3]", "∞": "\\infty ",
    "≤": "\\leq ", "⩽": "\\leq ", "≥": "\\geq ", "⩾": "\\geq ", "≠": "\\neq ", "≈": "\\approx ",
    "≡": "\\equiv ", "∈": "\\in ", "∪": "\\cup ", "∩": "\\cap ", "∖": "\\setminus ", "∅": "\\emptyset ",
    "±": "\\pm ", "∓": "\\mp ", "…": "...", "⋯": "...", "′": "'", "’": "'", "‘": "'", "“": "",
    "”": "", '"': "", "ℝ": "\\mathbb{R}", "ℤ": "\\mathbb{Z}", "ℕ": "\\mathbb{N}", "ℚ": "\\mathbb{Q}",
    "ℂ": "\\mathbb{C}", "⌊": "\\lfloor ", "⌋": "\\rfloor ", "⌈": "\\lceil ", "⌉": "\\rceil ",
    "∠": "\\angle ", "△": "\\triangle ", "、": ",", "。": ".",
    "٫": ".", "٬": ",", "٪": "%", "∨": "\\lor ", "∧": "\\land ", "€": "\\unit{euro}", "£": "\\unit{gbp}",
    "¥": "\\unit{yen}", "₹": "\\unit{inr}", "¢": "\\unit{cent}",
}  # fmt: skip
_INVISIBLE = {chr(code): "" for code in (0xAD, *range(0x200B, 0x2010), *range(0x2060, 0x2065), 0xFEFF, 0xFE0F)}
_TABLE = str.maketrans(
    {
        **_SIGNS,
        **_INVISIBLE,
        **{letter: f"\\{name} " for letter, name in _GREEK.items()},
        **{sign: f"\\frac{{{over}}}{{{under}}}" for sign, (over, under) in _HALVES.items()},
    }
)


_MICRO = re.compile("[µμ](?=[A-Za-z]{1,3}(?![A-Za-z]))")
_DIGIT = re.compile(r"(?![0-9])\d")  # of another script
_ELLIPSIS = re.compile(r"\.\.\.+|\. \. \.")


def plain_characters(text: str) -> str:
    """The text with every known symbol in LaTeX, other compatibility forms (fullwidth digits …) in NFKC,
    and runs of white space as one blank. Linear in the length."""
    text = _plain(text) if not text.isascii() else text.replace('"', "")
    return " ".join(_ELLIPSIS.sub("\\\\ldots ", text).split())


def _plain(text: str) -> str:
    text = _DIGIT.sub(lambda digit: str(unicodedata.decimal(digit[0])), _MICRO.sub("micro", text))
    text = _RAISED.sub(lambda run: "^{" + run[0].translate(_SUPERSCRIPTS) + "}", text)
    text = _LOWERED.sub(lambda run: "_{" + run[0].translate(_SUBSCRIPTS) + "}", text)
    # Twice: a fullwidth form becomes its sign only after NFKC, and NFKC would flatten ½ and ².
    return unicodedata.normalize("NFKC", text.translate(_TABLE)).translate(_TABLE)


_MONEY = r"(?:\\\$|\\unit\{[a-z]+\})"
_SCALES = {"k": "000", "K": "000", "M": "000000", "万": "0000", "億": "00000000", "亿": "00000000"}
_DENOMINATORS = dict(zip(
    ("half", "third", "quarter", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth"),
    (2, 3, 4, 4, 5, 6, 7, 8, 9, 10), strict=True,
))  # fmt: skip

Rewrite = str | Callable[[re.Match[str]], str]


def _ungrouped(found: re.Match[str]) -> str:
    return found[0].replace(".", "").replace(",", ".")


def _scaled(found: re.Match[str]) -> str:
    *value, scale = found.groups()
    return f"{''.join(value)}*1{_SCALES[scale]}"


def _part(found: re.Match[str]) -> str:
    under = _DENOMINATORS[found[2].lower()]
    return f"{found[1]}/{under}" if int(found[1]) < under else found[0]


def _cut_short(found: re.Match[str]) -> str:
    """A decimal whose last three digits are the same repeats that digit; any other ends where it is cut."""
    last, run = [(digit, len(list(run))) for digit, run in groupby(found[1])][-1]
    return f".{found[1][: len(found[1]) - run]}\\overline{{{last}}}" if run > 2 else f".{found[1]}"


def _currency_first(found: re.Match[str]) -> str:
    name = unit_name(found[1])
    return unit_token(name) if name in ("dollar", "euro", "gbp", "inr", "yen", "yuan", "won", "franc") else found[0]


# What a text must contain for the rule to apply, the rule, and an example.
_RULES: tuple[tuple[str, re.Pattern[str], Rewrite], ...] = tuple(
    (sign, re.compile(pattern), rewrite)
    for sign, pattern, rewrite in (
        (".", r"(?<![\d.,])\d{1,3}(?:(?:\.\d{3}){2,}(?:,\d+)?|\.\d{3},\d+)(?![\d.,])", _ungrouped),  # 1.234,56
        (",", r"(?<![\d.,])\d{1,2}(?:,\d{2})+,\d{3}(?![\d,])", lambda found: found[0].replace(",", "")),  # 1,00,000
        ("'", r"(?<=\d)'(?=\d{3}(?!\d))", ""),  # 1'234
        ("_", r"(?<=\d)_(?=\d{3}(?!\d))", ""),  # 10_000
        ("{,}", r"(?<=\d)\{,\}(?!\d{3}(?!\d))(?=\d)", "."),  # 3{,}5
        (",", rf"({_MONEY}\s?\d+),(\d\d)(?![\d,])", r"\1.\2"),  # €3,50
        (",", rf"(?<![\d,])(\d+),(\d\d?)(?=\s?(?:\\?%|{_MONEY}))", r"\1.\2"),  # 12,5 %, 3,50 €
        ("\\", rf"({_MONEY}\s?)([\d.,]+)\s?([kKM])\b", _scaled),  # $1.2k
        ("万", r"(?<=\d)()\s?(万)", _scaled),  # 3万
        ("億", r"(?<=\d)()\s?(億)", _scaled),  # 3億
        ("亿", r"(?<=\d)()\s?(亿)", _scaled),  # 3亿
        ("$", r"\b(?:US|U\.S\.)\s?(?=\\?\$)", ""),  # US$5
        ("", r"^([A-Z][A-Za-z]{1,2})\.?\s?(?=\d)", _currency_first),  # USD 5, Rs. 50
        ("h", r"^(\d+)\s?h\s?(\d\d?)(?:\s?m(?:in)?)?$", r"\1 h \2 min"),  # 1h30
        (" ", r"^(\d+) (?:out of|in) (\d+)$", r"\1/\2"),  # 1 out of 6
        ("", rf"^(\d+)[\s-]({'|'.join(_DENOMINATORS)})s?$", _part),  # 2 thirds
        ("dots", r"\.(\d+)\s?(?:\\ldots|\\dots)$", _cut_short),  # 0.333..., 3.14...
        ("(", r"(?<=\.)(\d*)\((\d+)\)", r"\1\\overline{\2}"),  # 0.1(6)
        ("j", r"^([-+.*\d\s]*\d)\s?j$", r"\1i"),  # 3+4j
        ("**", r"\*\*", "^"),  # 2**0.5
        ("rm", r"(\\(?:math|text)rm\s*\{[^{}]*)\^\{(-?\d)\}", r"\1^\2"),  # \mathrm{m s^{-1}}
        ("C", r"(?:\{\})?(?:[_^]\{?(\d+)\}?\s?|\b(\d+))C_?\{?(\d+)\}?(?![\d}])", r"\\binom{\1\2}{\3}"),  # {}_5C_2
        ("C(", r"^C\((\d+),\s?(\d+)\)$", r"\\binom{\1}{\2}"),  # C(5,2)
        ("choose", r"^(\d+) choose (\d+)$", r"\\binom{\1}{\2}"),  # 5 choose 2
        ("mod", r"(?<=[\d}])\s*(?:\\[pb]?mod|\(?\s?\bmod(?:ulo)?)[{\s]*(\d+)\s?\}?\)?$", r"\\unit{mod(\1)}"),  # 3 mod 7
        ("_", r"(?:\((\d[\dA-F]*)\)|(?<![\d.])(\d+))_\{?(\d+)\}?$", r"\1\2\\unit{base(\3)}"),  # 52_8
    )
)  # fmt: skip


def plain_notation(text: str) -> str:
    """The text with every notation of the rules in LaTeX."""
    for sign, pattern, rewrite in _RULES:
        if sign in text:
            text = pattern.sub(rewrite, text)
    return text
