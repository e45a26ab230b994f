"""One spelling for dates, times of day and chemical formulas, which people write in several ways."""

import re

from unprm.answers.tables import table

_MONTHS: list[str] = table("words")["months"].split()
_MONTH = "(?i:" + "|".join(f"{month[:3]}(?:{month[3:]})?" for month in _MONTHS) + r")\.?"
_DAY, _YEAR = r"\d{1,2}(?:st|nd|rd|th)?", r"(?:,? ?(?P<{}>\d{{4}}))?"
_DATES = [
    re.compile(rf"(?P<month>{_MONTH}) ?(?P<day>{_DAY}){_YEAR.format('year')}"),
    re.compile(rf"(?P<day>{_DAY}) ?(?:of )?(?P<month>{_MONTH}){_YEAR.format('year')}"),
    re.compile(r"(?P<year>\d{4})-(?P<month>\d\d)-(?P<day>\d\d)"),
]
_TIME = re.compile(r"(?P<hour>\d{1,2})(?:[:.](?P<minute>[0-5]\d))? ?(?P<half>[aApP])\.? ?[mM]\.?")
_TIME_OF_24 = re.compile(r"(?P<hour>0\d|1[3-9]|2[0-3]):(?P<minute>[0-5]\d)")
MOMENTS = [re.compile(rf"(?<![^\W\d_])(?:{each.pattern})(?![^\W\d_])") for each in (*_DATES, _TIME)]
"""Dates and times of day within a text."""
_LAYOUT_OF_CHEMISTRY = re.compile(r"\\(?:text|mathrm|ce|rm)(?![a-z])|[_{} ]")
_CHEMICAL = re.compile(r"(?=[^\d]*\d)(?:[A-Z][a-z]?\d*){2,}")
_LONGEST = 60  # characters


def moment_or_formula(text: str) -> str | None:
    r"""``\text{2020-3-5}`` for ``March 5, 2020``, ``\text{15:30}`` for ``3:30 p.m.``, ``H2O`` for ``\ce{H_2O}``; None
    for any other text."""
    if len(text) > _LONGEST or text.isdigit():
        return None
    for pattern in _DATES:
        if date := pattern.fullmatch(text):
            day, month = int(re.sub(r"\D", "", date["day"])), date["month"]
            number = int(month) if month.isdigit() else [name[:3] for name in _MONTHS].index(month[:3].title()) + 1
            return f"\\text{{{date['year'] or ''}-{number}-{day}}}"
    if time := _TIME.fullmatch(text) or _TIME_OF_24.fullmatch(text):
        half = time.groupdict().get("half", "")
        hour = int(time["hour"]) % 12 + 12 * (half in "pP") if half else int(time["hour"])
        return f"\\text{{{hour}:{time['minute'] or '00'}}}"
    plain = _LAYOUT_OF_CHEMISTRY.sub("", text)
    return plain if _CHEMICAL.fullmatch(plain) else None
