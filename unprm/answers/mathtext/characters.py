"""Unicode and typographic spellings, rewritten to plain LaTeX."""

import re
import unicodedata

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
