"""Model input that is the text itself: ids are bytes of UTF-8, so that texts come back out exactly."""

from collections.abc import Sequence

from unprm.errors import InvalidRequest
from unprm.types import Encoded, Prompt

TAG = 256
"""The id that ends a step; ids below it are bytes of UTF-8."""


class ByteFormat:
    """Ids are the bytes of `problem + "\\n"` and of each step, a tag after each step; scored at the tags."""

    longest_token = 1
    system = ""
    no_prompts = ""
    """Why prompts are refused, for a format that reads none."""

    def encode(self, problem: str, steps: Sequence[str]) -> Encoded:
        """One id per byte and one per step; `len(positions) == len(steps)`."""
        ids, positions = list(f"{problem}\n".encode()), []
        response = len(ids)
        for step in steps:
            ids += [*step.encode(), TAG]
            positions.append(len(ids) - 1)
        return Encoded(tuple(ids), tuple(positions), response)

    def steps(self, text: str, most: int) -> list[str] | None:
        """None: it has no separator."""
        return None

    def tokenize(self, prompt: Prompt) -> tuple[int, ...]:
        raise InvalidRequest(self.no_prompts)

    def at_tags(self, ids: Sequence[int]) -> Encoded:
        raise InvalidRequest(self.no_prompts)

    def tokens(self, encoded: Encoded) -> list[str]:
        """A byte as `<0x41>`, a tag as `ş`."""
        return ["ş" if token == TAG else f"<0x{token:02X}>" for token in encoded.ids]


def texts(encoded: Encoded) -> tuple[str, list[str]]:
    """The problem and the steps that the ids encode."""
    starts = [encoded.response, *(position + 1 for position in encoded.positions)]
    steps = [bytes(encoded.ids[start:end]).decode() for start, end in zip(starts, encoded.positions, strict=False)]
    return bytes(encoded.ids[: encoded.response - 1]).decode(), steps
