"""The `unprm` family: a causal language model with a LoRA adapter, which is read at each step's tag.

The input is built by concatenating token ids, `encode(problem + "\\n") + Σ (encode(step) + [tag])`, so no text
of a problem or step can make, move or forge a step boundary (paper, section 4.2).
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from tokenizers import Tokenizer

from unprm.errors import ModelInvalid
from unprm.formats.family import LAYER, Family, Head, Readout, Verdicts
from unprm.formats.pieces import PieceFormat, Pieces
from unprm.types import Encoded, StepTag
from unprm.validation_messages import summary, validation_errors

CONFIG_NAME = "prm_config.json"
STEP_TAG = "ş"
POSITIVE = "+"
NEGATIVE = "-"
PROBLEM_TEMPLATE = "{problem}\n"
HeadName = Literal["verdicts", "value", "classes"]
_MARKS = ("step_tag", "positive", "negative")
"""Fields that are each one token."""


class ModelConfig(BaseModel):
    """What `prm_config.json` has in every family that is trained here. `base`: hub name, or a path from the file's
    directory if it begins with a dot; `.`: beside the file."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    family: str
    name: str
    base: str
    base_revision: str | None = None

    @classmethod
    def read(cls, directory: Path) -> Self:
        """The configuration in a model's directory; raises `ModelInvalid` if it is missing or malformed."""
        path = directory / CONFIG_NAME
        if not path.is_file():
            raise ModelInvalid(
                f"{directory} has no {CONFIG_NAME}, which `unprm train` writes: for a PRM that another program made "
                "give --step-tag, --positive and --negative"
            )
        text = path.read_text("utf-8")
        try:
            return cls.model_validate_json(text)
        except ValidationError as error:
            sent = None if error.errors()[0]["type"] == "json_invalid" else json.loads(text)
            raise ModelInvalid(f"{path}: {summary(validation_errors(error, sent, cls))}") from error

    def write(self, directory: Path) -> None:
        text = json.dumps(self.model_dump(), ensure_ascii=False, indent=2)
        (directory / CONFIG_NAME).write_text(text + "\n", "utf-8")


class PrmConfig(ModelConfig):
    """The configuration of an adapter or a merged checkpoint. `head`: at a tag, `verdicts`, the logits of two tokens,
    or `value` or `classes`, one or two outputs of a linear layer."""

    family: Literal["unprm"] = "unprm"
    problem_template: str = PROBLEM_TEMPLATE
    step_tag: str = STEP_TAG
    positive: str = POSITIVE
    negative: str = NEGATIVE
    step_tag_id: int
    positive_id: int
    negative_id: int
    head: HeadName = "verdicts"
    beta: Annotated[float | None, Field(exclude=True)] = None
    """In files of earlier versions, which had another head that read it."""

    @classmethod
    def for_base(
        cls, tokenizer: Tokenizer, name: str, base: str, base_revision: str | None = None, **more: Any
    ) -> Self:
        """The configuration of a new adapter, with `more` fields. Raises `ModelInvalid` unless ids are single and
        differ."""
        marks = [more.get(mark, cls.model_fields[mark].default) for mark in _MARKS]
        ids = list(map(Pieces(tokenizer).single, marks))
        if len(set(ids)) < len(ids):
            tag, positive, negative = marks
            raise ModelInvalid(f"step tag {tag!r} and verdicts {positive!r}, {negative!r} must be different tokens")
        more |= {f"{mark}_id": id for mark, id in zip(_MARKS, ids, strict=True)}
        return cls(name=name, base=base, base_revision=base_revision, **more)

    @property
    def input_format(self) -> str:
        tag = self.step_tag
        question = self.problem_template.replace("\n", "\\n")
        return f"{question}{{step 1}}{tag}{{step 2}}{tag}… (scored at each {tag}: {self.measure})"

    @property
    def measure(self) -> str:
        """What is read at a tag, in words."""
        match self.head:
            case "verdicts":
                return f"P({self.positive}) against {self.negative}"
            case "value":
                return "one output of a linear layer"
            case "classes":
                return "the second of a linear layer's two classes"

    @property
    def readout(self) -> Readout:
        if self.head == "verdicts":
            return Verdicts(self.positive_id, self.negative_id, rows_alone=True)
        return Head((LAYER,))


class UnprmFormat(PieceFormat):
    """The input format of one model. Raises `ModelInvalid` if the tokenizer maps tag or verdicts to other ids."""

    family = "unprm"

    def __init__(self, tokenizer: Tokenizer, config: PrmConfig) -> None:
        super().__init__(tokenizer)
        for mark in _MARKS:
            text, expected = getattr(config, mark), getattr(config, f"{mark}_id")
            if (found := self.pieces.single(text)) != expected:
                raise ModelInvalid(
                    f"token {text!r} has id {found} in the base's tokenizer, the PRM was trained with id {expected}: "
                    f"the adapter belongs to another base than the one given ({config.base} is expected)"
                )
        self.config = config
        self.pieces.reserve(config.step_tag_id)
        self.tag = StepTag(config.step_tag_id, config.step_tag)
        self.readout = config.readout
        self.input_format = config.input_format

    def encode(self, problem: str, steps: Sequence[str]) -> Encoded:
        """Ids of problem and steps, a tag after each step; scored at the tags."""
        question = self.config.problem_template.replace("{problem}", problem)
        return self.tagged([question, *steps], [self.config.step_tag_id])


FAMILY = Family(
    name=UnprmFormat.family,
    about="a causal language model and the LoRA adapter that `unprm train` made for it; read at each step's tag",
    readout=None,
    build=lambda tokenizer, directory: UnprmFormat(tokenizer, PrmConfig.read(directory)),
)
FAMILIES = (FAMILY,)
