"""Settings of the stages that make data, and of evaluations; `prm.train_settings` has those of a training run."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Annotated, Any, Literal, Self

from typer import BadParameter, Option

from unprm.types import Extraction, SamplingSettings, Split
from unprm.uncertainty import MEASURES

LayoutName = Literal[
    "native",
    "unprm",
    "trl",
    "prm800k",
    "math-shepherd",
    "openrlhf",
    "er-prm",
    "rlhflow",
    "processbench",
    "prmbench",
    "step-dpo",
]
WrittenLayout = Literal["native", "unprm", "trl"]
LAYOUT = Option("--layout", help="Layout of the data; default: that of each row's fields.")
EXTRACTION = Option("--extraction", help="Where to look for the answer in a solution.")
STEP_SPLIT = Option("--step-split", help="How solutions are split into steps.")
K = Option("--k", min=1, help="Solutions per question.")
PROBE = Option(
    "--probe", help="A probe of the model, which scores the steps of samples as they are written (transformers)."
)


def _known_measure(name: str | None) -> str | None:
    if name not in (None, *MEASURES):
        raise BadParameter(f"{name!r} is none of {', '.join(MEASURES)}")
    return name


Seed = Annotated[int, Option(help="Seed of all random choices.")]
MeasureName = Annotated[str, Option(help="Name of the uncertainty measure.", callback=_known_measure)]


@dataclass(frozen=True, slots=True)
class SampleSettings:
    """How candidate solutions are sampled. `extraction`: where to look for the answer in the given solution of a
    question without an answer field. `worked_examples`: chat prompts begin with two worked examples. `probe`: what
    scores the steps."""

    k: Annotated[int, K] = 32
    temperature: Annotated[float, Option(min=0.0)] = 0.8
    max_tokens: Annotated[int, Option(min=1, help="Maximum number of tokens per solution.")] = 2048
    extraction: Annotated[Extraction, EXTRACTION] = "auto"
    seed: Seed = 0
    worked_examples: bool = False
    probe: Annotated[str | None, PROBE] = None

    @property
    def drawing(self) -> SamplingSettings:
        return SamplingSettings(
            self.temperature, max_tokens=self.max_tokens, worked_examples=self.worked_examples, probe=self.probe
        )


SelectionName = Literal["uncertainty", "uncertainty-diversity", "similarity", "random"]


@dataclass(frozen=True, slots=True)
class SelectSettings:
    """Which of a question's solutions are annotated. `fill`: if right ones are missing, take more wrong ones instead.
    `measure`: uncertainty measure of whole solutions, or of steps in "uncertainty-diversity". `diversity`: weight of
    dissimilarity in "uncertainty-diversity", in [0, 1]; uncertainty gets the rest. `min_steps`: solutions with fewer
    steps are left out."""

    selection: Annotated[SelectionName, Option(help="Which solutions are preferred.")] = "uncertainty"
    measure: MeasureName = "entropy"
    diversity: float = 0.2
    m: Annotated[int, Option("--m", min=0, help="Right solutions per question and sampling model.")] = 2
    n: Annotated[int, Option("--n", min=0, help="Wrong solutions per question and sampling model.")] = 6
    fill: bool = False
    min_steps: int = 1
    extraction: Annotated[Extraction, EXTRACTION] = "auto"
    split: Annotated[Split, STEP_SPLIT] = "auto"
    seed: Seed = 0


@dataclass(frozen=True, slots=True)
class AdaptiveSettings:
    """Adaptive sampling of rollouts from a prefix: `first` at once, then blocks of `block`, until `enough` are right or
    `most` are drawn (`first`, `enough`, `most`: the paper's N_0, N_min, N_max).

    With `fixed_count`, all prefixes of a question get the number of rollouts that adaptive sampling takes for the
    question alone, determined on `most` rollouts; questions with at most `enough` right ones of these are left out.
    """

    first: int = 16
    enough: int = 10
    most: int = 72
    block: int = 8
    fixed_count: bool = False


@dataclass(frozen=True, slots=True)
class BayesSettings:
    """`block`: rollouts drawn at a time; `budget`: maximum number of rollouts per solution. `strength`: how strongly
    the prior follows the uncertainties (0: not at all). `recovery`: success rate after an error, as a fraction of the
    rate before it. `concentration`: of the beta distributions of both rates; higher means less variation. `sure`:
    posterior probability that ends the search."""

    block: int = 4
    budget: int = 72
    strength: float = 1.0
    recovery: float = 0.05
    concentration: float = 4.0
    sure: float = 0.9


SearchName = Literal["uncertainty", "uncertainty-literal", "adaptive_binary", "sequential", "random", "bayes"]
EstimatorName = Literal["mc_ppl", "inverse_ppl", "frequency"]


@dataclass(frozen=True, slots=True)
class AnnotateSettings:
    """How wrong steps are found. `share_prefixes`: solutions of a question with the same prefix share its rollouts."""

    search: Annotated[SearchName, Option(help="How the wrong step is found.")] = "uncertainty"
    measure: MeasureName = "entropy"
    estimator: Annotated[EstimatorName, Option(help="Estimator of a prefix's value from its rollouts.")] = "mc_ppl"
    adaptive: AdaptiveSettings = field(default_factory=AdaptiveSettings)
    bayes: BayesSettings = field(default_factory=BayesSettings)
    share_prefixes: Annotated[
        bool, Option("--share-prefixes", help="Solutions with a common prefix share its rollouts.")
    ] = False
    extraction: Annotated[Extraction, EXTRACTION] = "auto"
    temperature: float = 0.8
    max_tokens: Annotated[int, Option(min=1, help="Maximum number of tokens per rollout.")] = 2048
    seed: Seed = 0

    def limited(self, most: int | None) -> "AnnotateSettings":
        """The same with at most so many rollouts: of a solution with the search `bayes`, else of each prefix, and of
        the question alone. None: as they are."""
        if most is None:
            return self
        plan, bayes = self.adaptive, self.bayes
        plan = replace(plan, first=min(plan.first, most), enough=min(plan.enough, most), most=most)
        return replace(self, adaptive=plan, bayes=replace(bayes, block=min(bayes.block, most), budget=most))

    @property
    def drawing(self) -> SamplingSettings:
        return SamplingSettings(self.temperature, max_tokens=self.max_tokens)


@dataclass(frozen=True, slots=True)
class ReadingSettings:
    """How a solution's text is read: where to look for its answer, and how to split it into steps."""

    extraction: Annotated[Extraction, EXTRACTION] = "auto"
    split: Annotated[Split, STEP_SPLIT] = "auto"


AUTO = ReadingSettings()


@dataclass(frozen=True, slots=True)
class BuildSettings(ReadingSettings):
    """What `build` takes of its stages' settings."""

    k: Annotated[int, K] = 32
    probe: Annotated[str | None, PROBE] = None


@dataclass(frozen=True, slots=True)
class Preset:
    """Settings for the construction of a data set: number of questions, sampling models, and each stage."""

    questions: int
    models: tuple[str, ...]
    sample: SampleSettings
    select: SelectSettings
    annotate: AnnotateSettings

    def changed(self, models: Sequence[str] | None, rollouts: int | None, given: Mapping[str, Any]) -> Self:
        """The same with other models and at most so many rollouts, unless None, and with what is `given`, by the names
        of the settings, in each stage that has them."""

        def of(stage: Any) -> Any:
            return replace(stage, **{name: value for name, value in given.items() if hasattr(stage, name)})

        annotate = of(self.annotate).limited(rollouts)
        names = tuple(models or self.models)
        return replace(self, models=names, sample=of(self.sample), select=of(self.select), annotate=annotate)


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
"""As in the paper's text, and in the authors' program where the text is silent: docs/lab/paper.md."""
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
"""As in the authors' program, also where the paper's text differs."""
RECOMMENDED = replace(PAPER, annotate=AnnotateSettings(search="bayes", measure="surprisal_max"))
"""The search that does best in the comparison in docs/lab/searches.md; everything else as in the paper."""
MINI = Preset(
    questions=40,
    models=("unprm-mini",),
    sample=SampleSettings(k=16, max_tokens=192),
    select=SelectSettings(),
    annotate=replace(RECOMMENDED.annotate, max_tokens=192),
)
"""The recommended search with the embedded model, which solves questions of its own domain."""
PresetName = Literal["paper", "authors", "mini", "recommended"]
PRESETS: dict[PresetName, Preset] = {"paper": PAPER, "authors": AUTHORS, "mini": MINI, "recommended": RECOMMENDED}
SAMPLE, SELECT, ANNOTATE = (
    {name: asdict(getattr(preset, stage)) for name, preset in PRESETS.items()}
    for stage in ("sample", "select", "annotate")
)
"""The settings of a stage by preset."""
BUILD = {name: SAMPLE[name] | SELECT[name] for name in PRESETS}
