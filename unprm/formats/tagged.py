"""PRMs that score each step at a tag or newline after it, without a chat: Math-Shepherd, Skywork-o1, VersaPRM, TRL."""

import json
from collections.abc import Sequence
from pathlib import Path

from tokenizers import Tokenizer

from unprm.errors import ModelInvalid
from unprm.formats.family import LAYER, Family, Head, KnownModel, Verdicts
from unprm.formats.pieces import PieceFormat, token_id
from unprm.steps import numbered
from unprm.types import Encoded, StepTag

SPACE = "▁"
"""A space, as SentencePiece writes it; in a text, this character can't be distinguished from a space."""
_BEGIN = "<|begin_of_text|>"
"""What Llama begins every text with."""
_NETWORKS = (
    "Gemma", "Gemma2", "Glm", "Glm4", "Llama", "Ministral", "Mistral", "Mixtral", "Phi3", "Qwen2", "Qwen2Moe", "Qwen3",
    "Qwen3Moe", "SmolLM3", "Starcoder2",
)  # fmt: skip
"""Those whose head for tokens is a layer named `LAYER`."""


class MathShepherdFormat(PieceFormat):
    """Math-Shepherd's PRM: P(+) against `-` at ` ки` (Wang et al., 2024). Raises `ModelInvalid` without these."""

    family = "math-shepherd"
    input_format = "{problem} Step 1: {step 1} ки\\nStep 2: {step 2} ки\\n… (scored at each ки: P(+) against -)"
    tag: StepTag

    def __init__(self, tokenizer: Tokenizer) -> None:
        super().__init__(tokenizer)
        self._begin = token_id(tokenizer, "<s>")
        tag, positive, negative = (token_id(tokenizer, SPACE + name) for name in ("ки", "+", "-"))
        self.tag = StepTag(tag, " ки", apart=False)
        self.pieces.reserve(tag)
        self.readout = Verdicts(positive, negative)

    def encode(self, problem: str, steps: Sequence[str]) -> Encoded:
        """Ids of the input as one text, since pieces would get a space; scored at the tags.

        Space at a step's end is left out: it would change the tag's token.
        """
        first, *others = (step.replace(SPACE, " ").rstrip() + " ки" for step in numbered(steps))
        parts = [f"{problem} ", first, *(f"\n{step}" for step in others), "\n"]
        ids, (_, *positions, _) = self.pieces.locate(parts, self.tag.id)
        assert all(ids[position] == self.tag.id for position in positions), "the tag was merged with what is before it"
        return Encoded((self._begin, *ids), tuple(position + 1 for position in positions))


class SkyworkFormat(PieceFormat):
    """Skywork-o1's PRMs: a value head at the newline after each step (Skywork-o1 Open Series, 2024). `begin`: id that
    begins a text. Raises `ModelInvalid` if a newline is not one token."""

    family = "skywork"
    readout = Head(("v_head.summary",))
    input_format = "{begin of text}{problem}\\n{step 1}\\n{step 2}\\n… (scored at the newline after each step)"

    def __init__(self, tokenizer: Tokenizer, begin: int) -> None:
        super().__init__(tokenizer)
        self._begin = begin
        self._newline = self.pieces.single("\n")

    @classmethod
    def build(cls, tokenizer: Tokenizer, directory: Path) -> "SkyworkFormat":
        begin = json.loads((directory / "config.json").read_text("utf-8")).get("bos_token_id")
        if not isinstance(begin, int):
            raise ModelInvalid(f"{directory / 'config.json'} has no bos_token_id, which begins this family's input")
        return cls(tokenizer, begin)

    def encode(self, problem: str, steps: Sequence[str]) -> Encoded:
        """Ids of problem and steps, each encoded separately, a newline after each; scored at the steps' newlines."""
        return self.tagged([f"{problem}\n", *steps], [self._newline], [self._begin])


class VersaprmFormat(PieceFormat):
    """VersaPRM and its ancestors: P(+) against `-` at a space and four newlines (Zeng et al., "VersaPRM: Multi-Domain
    Process Reward Model via Synthetic Reasoning Data", 2025). Raises `ModelInvalid` unless each is one token."""

    family = "versaprm"
    input_format = (
        "{begin of text, with Llama}{problem} \\n\\n{step 1} \\n\\n\\n\\n{step 2} \\n\\n\\n\\n… "
        "(scored after each step: P(+) against -)"
    )
    tag: StepTag

    def __init__(self, tokenizer: Tokenizer) -> None:
        begin = tokenizer.token_to_id(_BEGIN)
        super().__init__(tokenizer, () if begin is None else [_BEGIN])
        self._begin = [] if begin is None else [begin]
        tag, positive, negative = map(self.pieces.single, (" \n\n\n\n", "+", "-"))
        self.tag = StepTag(tag, " \n\n\n\n")
        self.pieces.reserve(tag)
        self.readout = Verdicts(positive, negative)

    def encode(self, problem: str, steps: Sequence[str]) -> Encoded:
        """Ids of problem and steps, without space around or what looks like a tag within; scored at the tags."""
        question, *texts = (text.strip().replace(self.tag.text, "") for text in (problem, *steps))
        return self.tagged([f"{question} \n\n", *texts], [self.tag.id], self._begin)


class TrlFormat(PieceFormat):
    """What TRL's `PRMTrainer` saves: a head of two classes, at the last token of each step's `separator` (TRL 1.13)."""

    family = "trl"
    readout = Head((LAYER,))

    def __init__(self, tokenizer: Tokenizer, begin: Sequence[int], separator: str) -> None:
        super().__init__(tokenizer)
        self._begin = begin
        (self._separator,) = self.pieces.encode([separator])
        end = separator.replace("\n", "\\n")
        self.input_format = (
            f"{{begin of text, if any}}{{problem}}{{step 1}}{end}{{step 2}}{end}… (scored after each {end})"
        )

    @classmethod
    def build(cls, tokenizer: Tokenizer, directory: Path, separator: str | None = None) -> "TrlFormat":
        r"""The format of a checkpoint. `separator`: with `\n` as a newline; by default config.json's `step_separator`.
        Raises `ModelInvalid` without any."""
        separator = separator or json.loads((directory / "config.json").read_text("utf-8")).get("step_separator")
        if not separator:
            raise ModelInvalid(
                "a checkpoint of TRL's does not tell its step_separator: give it by --separator, which was "
                r"'\n' by TRL's default; '\n\n' is a blank line"
            )
        path = directory / "tokenizer_config.json"
        begin = json.loads(path.read_text("utf-8")).get("bos_token") if path.exists() else None
        if isinstance(begin, dict):  # as transformers 4 writes it
            begin = begin["content"]
        begins = [] if begin is None else [token_id(tokenizer, begin)]
        return cls(tokenizer, begins, separator.replace("\\n", "\n"))

    def encode(self, problem: str, steps: Sequence[str]) -> Encoded:
        """Ids of problem and steps, each encoded apart; scored at the separators' last tokens."""
        return self.tagged([problem, *steps], self._separator, self._begin)


SEPARATORS = dict.fromkeys(
    ("HuggingFaceH4/Qwen2.5-Math-1.5B-Instruct-PRM-0.2", "HuggingFaceH4/Qwen2.5-Math-7B-Instruct-PRM-0.2"), "\n\n"
)
"""What separated the steps that published checkpoints were trained on, by their authors' scripts."""

FAMILIES = (
    Family(
        name=MathShepherdFormat.family,
        about="Mistral; P(+) at ки after each step",
        readout=Verdicts,
        models=(KnownModel("peiyi9979/math-shepherd-mistral-7b-prm", "not stated", 7.2, 31.5),),
        build=lambda tokenizer, directory: MathShepherdFormat(tokenizer),
    ),
    Family(
        name=SkyworkFormat.family,
        about="Qwen2 with a value head, read at the newline after each step",
        readout=Head,
        architectures=("Qwen2ForPrmModel",),
        models=(
            KnownModel("Skywork/Skywork-o1-Open-PRM-Qwen-2.5-1.5B", "Skywork Community", 1.5),
            KnownModel("Skywork/Skywork-o1-Open-PRM-Qwen-2.5-7B", "Skywork Community", 7.6),
        ),
        build=SkyworkFormat.build,
        aggregate="mean",
    ),
    Family(
        name=VersaprmFormat.family,
        about="Llama 3.1 or Qwen2.5-Math; P(+) at the four newlines after each step",
        readout=Verdicts,
        models=(
            KnownModel("UW-Madison-Lee-Lab/VersaPRM", "Llama 3.1 Community", 8.0),
            KnownModel("UW-Madison-Lee-Lab/VersaPRM-Aug", "Llama 3.1 Community", 8.0),
            KnownModel("UW-Madison-Lee-Lab/VersaPRM-Base-8B", "Llama 3.1 Community", 8.0),
            KnownModel("UW-Madison-Lee-Lab/Llama-PRM800K", "Llama 3.1 Community", 8.0),
            KnownModel("UW-Madison-Lee-Lab/Qwen-PRM800K", "not known", 7.6),
        ),
        build=lambda tokenizer, directory: VersaprmFormat(tokenizer),
    ),
    Family(
        name=TrlFormat.family,
        about="a language model with a head of two classes that TRL's PRMTrainer made, read at the separator "
        "after each step",
        readout=Head,
        architectures=tuple(f"{network}ForTokenClassification" for network in _NETWORKS),
        models=tuple(KnownModel(name, "not known", size) for name, size in zip(SEPARATORS, (1.5, 7.6), strict=True)),
        build=TrlFormat.build,
    ),
)
