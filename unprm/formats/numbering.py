"""Step numbers, for families whose models were trained on numbered steps."""

import re
from collections.abc import Sequence

_NUMBERED = re.compile(r"\s*Step\s*\d+\s*:", re.IGNORECASE)


def numbered(steps: Sequence[str]) -> list[str]:
    """Each step with `Step i: ` before it, unless it already begins with such a number."""
    return [step if _NUMBERED.match(step) else f"Step {number}: {step}" for number, step in enumerate(steps, 1)]
