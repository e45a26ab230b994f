"""What is said of scores by the embedded model, which is a demonstration."""

from unprm import mini
from unprm.mini.domain import knows
from unprm.wire import Demonstration


def about(name: str, problem: str | None) -> Demonstration:
    """What to know of a demonstration's scores of solutions to a problem."""
    inside = problem is not None and knows(problem)
    place = "this problem is in it" if inside else "this problem is outside it: the scores mean nothing"
    return Demonstration(in_domain=inside, detail=f"{name} is a demonstration: {mini.KNOWLEDGE}, and {place}.")
