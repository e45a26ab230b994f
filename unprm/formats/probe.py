"""The `probe` family: an untrained language model's hidden states and surprise, read on prompts as of a sampler:
`encode(before) + encode(problem) + encode(after) + Σ encode(step + separator)`."""

from collections.abc import Sequence
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator
from tokenizers import Tokenizer

from unprm.errors import ModelInvalid
from unprm.formats.family import Family, Probe
from unprm.formats.pieces import Draft, PieceFormat
from unprm.formats.unprm import ModelConfig
from unprm.types import Encoded
from unprm.uncertainty import MEASURES, SURPRISAL

SEPARATOR = "\n\n"


class ProbeConfig(ModelConfig):
    """The configuration of a probe. `before`, `after`: texts around a problem, with special tokens; `separator`: after
    every step. `layers`: from 1, ascending, the last after the final norm; `measures`: by their names in `MEASURES`."""

    family: Literal["probe"] = "probe"
    before: str
    after: str
    separator: Annotated[str, Field(min_length=1)] = SEPARATOR
    layers: Annotated[tuple[Annotated[int, Field(ge=1)], ...], Field(min_length=1)]
    measures: tuple[str, ...] = SURPRISAL

    @model_validator(mode="after")
    def _check(self) -> Self:
        if list(self.layers) != sorted(set(self.layers)):
            raise ValueError(f"layers must ascend, {', '.join(map(str, self.layers))} were given")
        if unknown := [name for name in self.measures if name not in MEASURES]:
            raise ValueError(f"measures {', '.join(unknown)} are none of {', '.join(MEASURES)}")
        return self

    @property
    def readout(self) -> Probe:
        return Probe(self.layers, self.measures)

    @property
    def input_format(self) -> str:
        before, after, between = (text.replace("\n", "\\n") for text in (self.before, self.after, self.separator))
        read = ", ".join([*(f"layer {layer}" for layer in self.layers), *self.measures])
        return f"{before}{{problem}}{after}{{step 1}}{between}{{step 2}}{between}… (scored at each step's end: {read})"


class ProbeFormat(PieceFormat):
    """The input format of one probe. Raises `ModelInvalid` if nothing precedes the first token, or parts steps."""

    family = "probe"

    def __init__(self, tokenizer: Tokenizer, config: ProbeConfig) -> None:
        super().__init__(tokenizer)
        self.config = config
        self.readout = config.readout
        self.input_format = config.input_format
        self._before, self._after = (
            self._recognising.encode(text, add_special_tokens=False).ids for text in (config.before, config.after)
        )
        (between,) = self.pieces.encode([config.separator])
        if not (self._before or self._after) or not between:
            raise ModelInvalid(
                f"the texts of the probe {config.name} before and after a problem, or its separator, are no token of "
                "its base"
            )

    def encode(self, problem: str, steps: Sequence[str]) -> Encoded:
        """Ids of the prompt and of each step with the separator after it; scored at each step's last token."""
        asked, *pieces = self.pieces.encode([problem, *(step + self.config.separator for step in steps)])
        draft = Draft().add(self._before).add(asked).add(self._after)
        response = len(draft)
        return draft.steps(pieces, []).done(response)


FAMILY = Family(
    name=ProbeFormat.family,
    about="a causal language model as it is and the small head that `unprm train --head probe` made for it; read at "
    "each step's end, from several layers and from how surprising its tokens are",
    readout=None,
    build=lambda tokenizer, directory: ProbeFormat(tokenizer, ProbeConfig.read(directory)),
)
FAMILIES = (FAMILY,)
