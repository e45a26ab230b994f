"""Settings of the stages, and their reports."""

import math
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from training.bayes import BayesSettings
from unprm.formats.unprm import NEGATIVE, POSITIVE, PROBLEM_TEMPLATE, STEP_TAG
from unprm.types import Extraction, Normalization, SamplingSettings, Split

LossName = Literal["bce", "mse", "orm", "rank"]


@dataclass(frozen=True, slots=True)
class TrainSettings:
    """How to train. The defaults are those of the authors' public code.

    `batch_size` is in solutions per optimiser step, `batch_tokens` in tokens per forward pass, padding
    included. `gradient_checkpointing`: activations are computed twice, to save memory. Where one of these two is
    None, the trainer chooses it by the memory that is free. `bf16`: the base is in bfloat16 and computes in it
    where that is safe; on a GPU the base always is. `name`: the model's, the output directory's if empty.
    `problem_template`: how the model reads a problem, in which `{problem}` stands for it. `step_tag`, `positive`,
    `negative`: what each step ends with and the verdicts on it, one token each of the base. `warmup` is the
    fraction of all steps in which the learning rate rises. `validation`: held-out solutions, looked at after each
    epoch; with a `patience` training ends when they have not got better for that many epochs, and the best epoch
    counts. `packing`: solutions one behind the other without padding, None where FlashAttention is there.
    """

    base: str
    data: tuple[Path, ...]
    output: Path
    name: str = ""
    base_revision: str | None = None
    problem_template: str = PROBLEM_TEMPLATE
    step_tag: str = STEP_TAG
    positive: str = POSITIVE
    negative: str = NEGATIVE
    validation: tuple[Path, ...] = ()
    patience: int | None = None
    loss: LossName = "bce"
    epochs: int = 3
    learning_rate: float = 5e-4
    warmup: float = 0.1
    batch_size: int = 256
    batch_tokens: int | None = None
    lora_rank: int = 8
    lora_alpha: int = 32
    lora_dropout: float = 0.1
    lora_targets: tuple[str, ...] = ("q_proj", "v_proj")
    bf16: bool = False
    packing: bool | None = None
    gradient_checkpointing: bool | None = None
    compile: bool = False
    checkpoint_every: int = 50
    seed: int = 0

    def rate(self, step: int, total: int) -> float:
        """Learning rate of a step: linear warm-up, then a cosine to zero."""
        rising = max(1, round(self.warmup * total))
        if step < rising:
            return self.learning_rate * (step + 1) / rising
        return self.learning_rate * 0.5 * (1 + math.cos(math.pi * (step - rising) / max(1, total - rising)))


LINEAR = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
TRAIN_PRESETS: dict[str, dict[str, Any]] = {
    "paper": {},
    "authors": {"loss": "rank"},
    "default": {
        "learning_rate": 2e-4,
        "batch_size": 128,
        "lora_rank": 16,
        "lora_dropout": 0.05,
        "lora_targets": LINEAR,
    },
}
"""What differs from the defaults of `TrainSettings`, which are the paper's."""


@dataclass(frozen=True, slots=True)
class TrainReport:
    """What a run did; `loss` is the mean over the last tenth of its steps."""

    examples: int
    dropped_too_long: int
    steps: int
    loss: float


@dataclass(frozen=True, slots=True)
class SampleSettings:
    """`k` solutions per question, each of at most `max_tokens` tokens. `extraction`: where the answer is looked for in
    the solution of a question that has no answer. `worked_examples`: chat prompts begin with two worked examples."""

    k: int = 32
    temperature: float = 0.8
    max_tokens: int = 2048
    extraction: Extraction = "auto"
    seed: int = 0
    worked_examples: bool = False

    @property
    def drawing(self) -> SamplingSettings:
        """The sampler's settings."""
        return SamplingSettings(self.temperature, max_tokens=self.max_tokens, worked_examples=self.worked_examples)


SelectionName = Literal["uncertainty", "uncertainty-diversity", "similarity", "random"]


@dataclass(frozen=True, slots=True)
class SelectSettings:
    """`m` right and `n` wrong solutions per question and sampling model; with `fill`, wrong ones also take the places
    of missing right ones. `measure`: of a solution's uncertainty, or of its steps' in "uncertainty-diversity".
    `diversity`: how much "uncertainty-diversity" weighs unlikeness, in [0, 1]; uncertainty weighs the rest.
    `min_steps`: solutions of fewer are left out. `embedding`: the sentence-embedding model that similarity is measured
    with, TF-IDF if empty. `extraction`: where the answer of a solution is looked for. `split`: where its steps end."""

    selection: SelectionName = "uncertainty"
    measure: str = "entropy"
    diversity: float = 0.2
    embedding: str = ""
    m: int = 2
    n: int = 6
    fill: bool = False
    min_steps: int = 1
    extraction: Extraction = "auto"
    split: Split = "auto"
    seed: int = 0


@dataclass(frozen=True, slots=True)
class AdaptiveSettings:
    """Rollouts from a prefix: `first` at once, then blocks of `block`, until `enough` are right or `most` are
    drawn (the paper's N_0, N_min, N_max).

    With `fixed_count` their number is found once per question, from `most` rollouts of the question alone: it is that
    which sampling takes there, and questions with at most `enough` right ones are left out.
    """

    first: int = 16
    enough: int = 10
    most: int = 72
    block: int = 8
    fixed_count: bool = False


SearchName = Literal["uncertainty", "uncertainty-literal", "adaptive_binary", "sequential", "random", "bayes"]
EstimatorName = Literal["mc_ppl", "inverse_ppl", "frequency"]


@dataclass(frozen=True, slots=True)
class AnnotateSettings:
    """How wrong steps are found.

    `measure`: of a step's uncertainty. `early_stop`: rollouts from a prefix end once its verdict (its value is
    below τ, or not) is this likely to stay, in (0.5, 1]; 1 asks that no outcome of the rest could change it, as
    long as its perplexities stay within what was seen; None never. `share_prefixes`: solutions of a question
    with the same prefix share its rollouts. `extraction`: where the answer of a rollout is looked for; as in `select`.
    """

    search: SearchName = "uncertainty"
    measure: str = "entropy"
    estimator: EstimatorName = "mc_ppl"
    adaptive: AdaptiveSettings = field(default_factory=AdaptiveSettings)
    bayes: BayesSettings = field(default_factory=BayesSettings)
    early_stop: float | None = None
    share_prefixes: bool = False
    extraction: Extraction = "auto"
    temperature: float = 0.8
    max_tokens: int = 2048
    seed: int = 0

    @property
    def drawing(self) -> SamplingSettings:
        """The sampler's settings."""
        return SamplingSettings(self.temperature, max_tokens=self.max_tokens)


@dataclass(frozen=True, slots=True)
class Reading:
    """How the text of a solution is read: where its answer is looked for, and where its steps end."""

    extraction: Extraction = "auto"
    split: Split = "auto"


AUTO = Reading()
"""How solutions are read where nothing else is said."""


@dataclass(frozen=True, slots=True)
class WrfSettings:
    """Of the vote `wrf`: `alpha`, the weight of the reward in [0, 1], and how rewards and frequencies are made
    comparable."""

    alpha: float = 0.5
    normalization: Normalization = "minmax"


WRF = WrfSettings()
"""The paper's."""


@dataclass(frozen=True, slots=True)
class Preset:
    """Settings of a whole construction: how many questions, and every stage."""

    questions: int
    models: tuple[str, ...]
    sample: SampleSettings
    select: SelectSettings
    annotate: AnnotateSettings


PAPER = Preset(
    questions=3500,
    models=(
        "meta-llama/Llama-3.1-8B-Instruct",
        "Qwen/Qwen2.5-7B-Instruct",
        "mistralai/Mistral-7B-Instruct-v0.3",
    ),
    sample=SampleSettings(worked_examples=True),
    select=SelectSettings(),
    annotate=AnnotateSettings(),
)
"""The paper's text, and the authors' program where the text is silent. docs/paper.md has the differences."""
AUTHORS = replace(
    PAPER,
    select=SelectSettings(selection="uncertainty-diversity", measure="entropy_t5", fill=True, min_steps=2),
    annotate=AnnotateSettings(
        measure="entropy_t5",
        estimator="inverse_ppl",
        adaptive=AdaptiveSettings(fixed_count=True),
        max_tokens=4000,
    ),
)
"""The authors' program, also where the text says otherwise."""
RECOMMENDED = replace(PAPER, annotate=AnnotateSettings(search="bayes", measure="surprisal_max"))
"""What the comparison of all searches in docs/data.md speaks for; everything else as in the paper."""
MINI = Preset(
    questions=40,
    models=("unprm-mini",),
    sample=SampleSettings(k=16, max_tokens=192),
    select=SelectSettings(),
    annotate=replace(RECOMMENDED.annotate, max_tokens=192),
)
"""The recommended search with the embedded model, which solves questions of its own domain."""
PRESETS = {"paper": PAPER, "authors": AUTHORS, "mini": MINI, "recommended": RECOMMENDED}
