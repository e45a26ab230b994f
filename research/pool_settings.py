"""How a pool is sampled."""

from dataclasses import dataclass
from typing import Annotated

from typer import Option

SYSTEM = "Please reason step by step, and put your final answer within \\boxed{}."


@dataclass(frozen=True, slots=True)
class PoolSettings:
    """How a pool is sampled; kept beside it, and part of its card.

    `only`: questions whose field has one of these values, as in `level=1`. `weights`: SHA-256 of the file that the
    server has loaded. `first`: as many candidates of every question come before any question gets more.
    """

    weights: Annotated[str, Option(help="SHA-256 of the file with the model's weights, for the card.")]
    limit: Annotated[int, Option(min=1, help="Number of questions drawn.")] = 120
    only: Annotated[list[str] | None, Option(help="Draw among questions with FIELD=VALUE; repeat for others.")] = None
    samples: Annotated[int, Option(min=1, help="Candidates of each question.")] = 16
    first: Annotated[int, Option(min=1, help="Candidates of every question in the first round.")] = 4
    temperature: Annotated[float, Option(min=0.0)] = 0.8
    max_tokens: Annotated[int, Option(min=1, help="Maximum tokens of a candidate.")] = 1024
    system: Annotated[str, Option(help="The system prompt; the problem alone is the user's message.")] = SYSTEM
    seed: Annotated[int, Option(help="Seed of the questions drawn and of each candidate.")] = 0
