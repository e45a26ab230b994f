"""Stands for a model on a server whose steps are scored by `unprm.agreement`: it says what that is, and refuses what is
not a problem's candidates."""

from collections.abc import Sequence

from unprm.agreement import LEAST, NAME
from unprm.engines.byte_format import ByteFormat
from unprm.errors import InvalidRequest
from unprm.types import Encoded, ModelDescription, StepScores


class AgreementFormat(ByteFormat):
    """Reads no single text."""

    family = NAME
    longest_token = 2**31
    no_prompts = (
        f"{NAME} compares the candidates of a problem, of which /score_steps takes {LEAST} or more as `solutions`; it "
        "reads no single text, and gives no rewards"
    )

    def encode(self, problem: str, steps: Sequence[str]) -> Encoded:
        raise InvalidRequest(self.no_prompts)

    def steps(self, text: str, most: int) -> list[str] | None:
        raise InvalidRequest(self.no_prompts)

    def text(self, encoded: Encoded) -> str:
        """Nothing was encoded."""
        return ""


class AgreementEngine:
    """Runs nothing. `max_steps`: of a solution."""

    def __init__(self, max_steps: int) -> None:
        self.format = AgreementFormat()
        self.description = ModelDescription(
            name=NAME,
            family=NAME,
            engine=NAME,
            device="cpu",
            dtype="none",
            max_tokens=max_steps,
            input_format="no model: a step's score is the share of a problem's other candidates that have a value it "
            "computes, the least if it computes several. For arithmetic alone: it tells right steps from first wrong "
            "ones with an AUROC of 0.76 in GSM8K, and hardly in MATH (0.53). As rewards, its scores elected no better "
            "answers than the majority",
        )

    def score(self, batch: Sequence[Encoded]) -> list[StepScores]:
        """Nothing: there is no input that it reads."""
        return []

    def close(self) -> None:
        """Nothing is held."""
