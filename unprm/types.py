"""The values passed between the parts of unprm, and the protocols of those parts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, ClassVar, Final, Literal, NamedTuple, Protocol, runtime_checkable

from pydantic import BaseModel, ConfigDict, Field, PlainSerializer

from unprm.calibration import Calibration

Probability = Annotated[float, Field(ge=0.0, le=1.0, allow_inf_nan=False, strict=True)]
Positive = Annotated[float, Field(gt=0.0, le=1e6, allow_inf_nan=False, strict=True)]

Aggregate = Literal["min", "last", "product", "mean"]
"""How a solution's step scores become its reward."""

Combination = Literal["outcome", "process", "outcome_min", "outcome_mean"]
"""How an answer that is right (1) or not (0) and step scores make one reward: the first alone, the step scores' reward
alone, the product of the first with the lowest score, its sum with a share of their mean."""

Extraction = Literal["auto", "stated", "boxed", "last_number", "choice"]
"""Where a solution's answer is searched for."""

Split = Literal["auto", "paragraph", "step", "line"]
"""Where a solution's text is split into steps."""

DEFAULT_STRATEGY: Final = "wrf"
"""The vote of the gateway and of the clients if none is named; docs/lab/votes.md has the evidence for it."""

SamplerName = Literal["transformers", "vllm", "openai", "chat"]
"""What runs a model that writes solutions: a library here, or a server's completions or chat API."""

Evidence = Literal["before", "after"]
"""What an action of an agent is judged by: what was known `before` it, or also what came `after` it, up to the next."""

DecidedBy = Literal["majority", "reward", "combined", "confidence", "comparison", "unanimous", "only_answer"]
"""What settled a vote: `unanimous` if all candidates have the answer, `only_answer` if others have none."""

ComparedAs = Literal["stated", "json", "short_text", "tool_call", "none"]
"""How answers are compared: those `stated` in a text as mathematics; `json` by its values; replies that are
themselves an answer (`short_text`) by their words; calls of tools (`tool_call`) by name and arguments;
without any answer (`none`) every candidate stands for itself."""

Milliseconds = Annotated[float, PlainSerializer(partial(round, ndigits=1), return_type=float)]
"""Told to a tenth."""

_EXACT = ConfigDict(extra="forbid")
"""Of what stands in responses as it is."""


@dataclass(frozen=True, slots=True)
class Cut:
    """Characters of a truncated message, and how many of them were kept."""

    __pydantic_config__: ClassVar = _EXACT

    characters: int
    kept: int


class Prompt(NamedTuple):
    """Text or token ids that another program made. `begins`: whether the tokens that begin every input are to be
    added."""

    content: str | tuple[int, ...]
    begins: bool = True


@dataclass(frozen=True, slots=True)
class Solution:
    """A candidate as a vote and a model read it."""

    steps: tuple[str, ...]  # none of a blank text
    answer: str | None = None  # the one sent, or found in the text
    id: str | None = None
    step_scores: tuple[float, ...] | None = None  # sent: one per step, in [0, 1]
    confidence: float | None = None  # of the model that wrote it, ≥ 0
    evidence: Evidence | None = None  # of a trajectory: what its steps are judged by
    messages: tuple[int, ...] | None = None  # of a trajectory: for each step the index of its message
    cut: Mapping[int, Cut] = field(default_factory=dict)  # of a trajectory: by index, the truncated messages
    prompt: Prompt | None = None  # what the model reads in place of the steps
    compared_as: ComparedAs = "stated"  # the kind of the answer
    spans: tuple[tuple[int, int], ...] | None = None  # of the steps in the text that was sent, in code points
    last_tokens: tuple[int, ...] | None = None  # for each step its last token's index among the offsets that were sent
    problem: str = ""  # for a model to read
    text: str = ""  # in which an answer is searched


@dataclass(frozen=True, slots=True)
class Encoded:
    """A solution as model input: token ids, and the indices at which steps are scored, ascending, or equal where the
    solution is scored as a whole.

    `response`: index of the solution's first token. `asked`: tokens of a judge's prompts. `scope`: shares computation
    with its own scope alone, a server's caller. `evidence`: of a trajectory, for a judge.
    """

    ids: tuple[int, ...]
    positions: tuple[int, ...]
    response: int = 0
    asked: int = 0
    scope: str = ""
    evidence: Evidence | None = None

    @property
    def cost(self) -> int:
        """What it takes to score it from scratch, in tokens."""
        return self.asked or len(self.ids)

    @property
    def ids_to_last_position(self) -> tuple[int, ...]:
        """The ids up to and including the last position; no score depends on later ones."""
        return self.ids[: self.positions[-1] + 1]


def common_prefix(first: Sequence[int], second: Sequence[int]) -> int:
    """Length of the common prefix, by halves: slices are compared fast."""
    low, high = 0, min(len(first), len(second))
    while low < high:
        middle = (low + high + 1) // 2
        if first[low:middle] == second[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


@dataclass(frozen=True, slots=True)
class Usage:
    """A request's tokens: in total, run by the model, and reused from earlier requests. Times in milliseconds:
    tokenization, the wait for the first batch, and from there to the last score; summed over models and over the rounds
    of a chat completion."""

    __pydantic_config__: ClassVar = ConfigDict(extra="forbid", json_schema_serialization_defaults_required=True)

    tokens: int = 0
    computed_tokens: int = 0
    cached_tokens: int = 0
    tokenization_ms: Milliseconds = field(default=0.0, compare=False)
    queue_ms: Milliseconds = field(default=0.0, compare=False)
    scoring_ms: Milliseconds = field(default=0.0, compare=False)

    @classmethod
    def from_scores(cls, scores: "Sequence[StepScores]") -> "Usage":
        tokens, computed = sum(outcome.tokens for outcome in scores), sum(outcome.computed for outcome in scores)
        return cls(tokens, computed, tokens - computed)

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            self.tokens + other.tokens,
            self.computed_tokens + other.computed_tokens,
            self.cached_tokens + other.cached_tokens,
            self.tokenization_ms + other.tokenization_ms,
            self.queue_ms + other.queue_ms,
            self.scoring_ms + other.scoring_ms,
        )


@dataclass(slots=True)
class AnswerGroup:
    """A class of equal answers; `members` are indices into the request's solutions. Rewards are over the members that
    have one, null if none has; the vote then counts them as 0."""

    # `answer`: the first member's; the normalized parts are of WRF; `score`: what the vote compares, if it does

    __pydantic_config__: ClassVar = ConfigDict(extra="forbid", json_schema_serialization_defaults_required=True)

    answer: str
    count: int
    members: list[int]  # ascending
    mean_reward: float | None = None
    max_reward: float | None = None
    normalized_reward: float | None = None
    normalized_frequency: float | None = None
    score: float | None = None


@dataclass(frozen=True, slots=True)
class Rollout:
    """A completion from a prefix: natural-log probabilities (≤ 0) of its tokens, and whether it is correct."""

    logprobs: tuple[float, ...]
    correct: bool


@dataclass(frozen=True, slots=True)
class Completion:
    """What a sampler wrote after a prompt.

    `logprobs`: natural-log probabilities (≤ 0) before temperature, one per token, the end-of-text token included.
    `ids`: empty where an API returns none. `finished`: not by the token limit. `step_scores`: by a probe, in [0, 1],
    one per step of `steps.split`; empty where a step has no token of its own.
    """

    text: str
    ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    finished: bool
    step_scores: Annotated[tuple[float, ...] | None, Field(exclude_if=lambda scores: scores is None)] = None


@dataclass(frozen=True, slots=True)
class SamplingSettings:
    """`max_tokens`: of one completion. `worked_examples`: chat prompts begin with two. `probe`: hub name or directory
    of a probe of the model, which scores the steps as they are written."""

    temperature: float = 0.8
    top_p: float = 1.0
    max_tokens: int = 2048
    worked_examples: bool = False
    probe: str | None = None


@dataclass(frozen=True, slots=True)
class SelfTest:
    """Result of an engine's self-test before it serves, on sequences that share prefixes."""

    __pydantic_config__: ClassVar = _EXACT

    difference: Annotated[
        float,
        Field(
            ge=0,
            description="Difference between values that should be equal: margins of the engine and of plain forward "
            "passes (torch, root mean square), or, at most, scores of the same steps alone and together (vllm, "
            "remote), or scored twice (judge).",
        ),
    ]
    tolerance: Annotated[float, Field(gt=0, description="Largest difference at which the model is still served.")]
    cached: Annotated[bool, Field(description="Whether tokens are run only once.")]


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """Bytes that the model takes on its device."""

    __pydantic_config__: ClassVar = _EXACT

    weights: Annotated[int, Field(ge=0)]
    slots: Annotated[int, Field(ge=0, description="KV cache when full, including the prefix cache.")]
    activations: Annotated[
        int,
        Field(ge=0, description="Peak of a pass of --batch-tokens, on a CPU of 1,024 tokens, with its CUDA graphs."),
    ]


@dataclass(frozen=True, slots=True)
class PromptLimits:
    """Maximum tokens of a judge's prompts: for a `batch`, and for a `request`."""

    batch: int
    request: int


class ModelDescription(BaseModel):
    """A served model; `demo` marks the embedded model, which knows only its own small domain."""

    # not reported: `max_tokens` of a solution, `calibration` for the mean with other models, a judge's `prompt_limits`

    model_config = ConfigDict(extra="forbid", json_schema_serialization_defaults_required=True)

    name: str
    family: str
    base: str = Field(default="none", description="Hub name, or the name of its directory.")
    adapter: str | None = Field(default=None, description="Hub name, or the name of its directory.")
    revision: str | None = None
    engine: str
    device: str
    dtype: str
    input_format: str = ""
    digest: str | None = Field(
        default=None,
        description="Hash of weights, input format and `dtype`; models that score differently differ in it. null if "
        "another program runs the model and does not report what it loaded.",
    )
    self_test: SelfTest | None = Field(
        default=None, description="null if each sequence is run alone, by the model's own forward pass."
    )
    memory: MemoryPlan | None = Field(
        default=None, description="null if another program holds the model (vllm, remote, judge)."
    )
    demo: bool = False
    max_tokens: int = Field(exclude=True)
    calibration: Calibration = Field(default=Calibration(), exclude=True)
    prompt_limits: PromptLimits | None = Field(default=None, exclude=True)


class StepScores(NamedTuple):
    """What a solution's steps score: `values` in [0, 1], one per step.

    `computed`: tokens that were run for them, shared ones counted once; `tokens`: without any sharing; `missing`: steps
    without a judge's verdict, whose values mean nothing.
    """

    values: tuple[float, ...]
    computed: int = 0
    tokens: int = 0
    missing: int = 0


class StepTag(NamedTuple):
    """The token that ends each step of a family. `text`: that in a prompt. `apart`: whether a prompt's parts between
    tags are encoded separately, or tags with the text around them."""

    id: int
    text: str
    apart: bool = True


class Format(Protocol):
    """Turns a problem and a solution's steps into the input of a PRM family."""

    family: str
    longest_token: int
    """Maximum characters of text in one token."""
    system: str
    """The system message that the family's template begins with by itself; empty if there is none."""

    def encode(self, problem: str, steps: Sequence[str]) -> Encoded:
        """Token ids and scored positions; `len(positions) == len(steps)` always."""

    @property
    def tag(self) -> StepTag | None:
        """What ends each step, also in a caller's text; None if the family has no tag."""

    def tokenize(self, prompt: Prompt) -> tuple[int, ...]:
        """Token ids of a prompt, special tokens and step tags included. Raises `InvalidRequest`."""

    def at_tags(self, ids: Sequence[int]) -> Encoded:
        """A prompt scored at its step tags, or at one put after its text. Raises `InvalidRequest`."""

    def text(self, encoded: Encoded) -> str:
        """The exact text that the ids encode."""

    def tokens(self, encoded: Encoded) -> list[str]:
        """Each id's vocabulary entry, for display."""


class Engine(Protocol):
    """A loaded model. Blocking; called from one thread at a time."""

    @property
    def description(self) -> ModelDescription:
        """The served model."""

    @property
    def format(self) -> Format:
        """How the model's input is built."""

    def score(self, batch: Sequence[Encoded]) -> list[StepScores]:
        """Step scores of each item, as many as positions, the same in any batch but for rounding."""

    def close(self) -> None:
        """Frees the model's memory."""


@runtime_checkable
class PrefixEngine(Engine, Protocol):
    """An engine that runs a prefix once for all items of a batch and of earlier ones."""

    def new_tokens(self, item: Encoded) -> int:
        """Tokens of an item that it would run now. Called only while it does not score."""


class Sampler(Protocol):
    """A model that writes solutions. Calls may run at once, with independent results, equal ones where it is seeded."""

    model: str
    """The model's name, as written to every record."""
    neutral: Mapping[str, float]
    """The settings with which a server is kept from changing the distribution; empty where the model runs here."""

    def prompt(self, problem: str) -> tuple[int, ...]:
        """Token ids of the prompt for a solution; empty if the API takes no token ids."""

    def decode(self, ids: Sequence[int]) -> str:
        """The text of token ids, without special tokens."""

    async def solve(self, problem: str, count: int, seed: int) -> list[Completion]:
        """`count` solutions of a problem; raises `SamplerFailed` if they can't be obtained."""

    async def complete(self, prompt: Sequence[int], count: int, seed: int, affinity: str) -> list[Completion]:
        """`count` completions of a prompt; calls of equal `affinity` share its cache. Raises `SamplerFailed`."""

    async def close(self) -> None:
        """Frees the sampler's resources."""
