"""The label of a step."""

from typing import Annotated

from pydantic import BeforeValidator

VERDICT = 0.5
"""Where only right or wrong will do (ranking, metrics, calibration), a label above this is right."""


def _label(value: object) -> bool | float | None:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int | float) and 0 <= value <= 1:
        return bool(value) if value in (0, 1) else value
    raise ValueError("expected true, false, null, or a number in [0, 1]")


Label = Annotated[bool | float | None, BeforeValidator(_label)]
"""True: right; False: wrong; between 0 and 1, a soft label: the probability of right; None: unknown. 0 and 1 are read
as False and True."""
