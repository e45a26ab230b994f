"""Settings of the lab: the data sets compared, and the sizes of everything."""

from dataclasses import dataclass, field, replace
from typing import Literal

from training.stage_settings import PRESETS as DATA_PRESETS
from training.stage_settings import AdaptiveSettings, AnnotateSettings, SampleSettings, SelectionName, SelectSettings

from ..searches.study import variants

MINI = DATA_PRESETS["mini"]
"""How the embedded generator is sampled, also where the lab's numbers differ."""
VERDICTS = "Y", "N"
"""Verdict tokens for right and wrong steps that no base has seen as verdicts: the embedded base was pretrained on the
exact checker's verdicts with `+` and `-`. So what a PRM says with these tokens comes from its own training data."""
BaseName = Literal["verdicts", "text"]
"""Base model of the PRMs: "verdicts", the embedded generator, which was pretrained on verdicts of the exact checker
with other tokens; or "text", a generator pretrained without any verdicts."""


@dataclass(frozen=True, slots=True)
class LabSettings:
    """`questions`: number of questions for the data sets, with `k` samples each, of which at most `m` right and `n`
    wrong ones are selected. `evaluated`: number of other questions, with `candidates` each for best-of-N. `per_level`:
    maximum number of wrong solutions per level of the first-error benchmark, and of right ones. `seeds`: PRMs per data
    set and base. `adaptive`: rollouts from a prefix."""

    questions: int
    evaluated: int
    candidates: int
    per_level: int
    seeds: int
    bases: tuple[BaseName, ...] = ("verdicts", "text")
    k: int = 16
    m: int = 2
    n: int = 6
    adaptive: AdaptiveSettings = field(default_factory=AdaptiveSettings)
    epochs: int = 2
    batch_size: int = 32
    seed: int = 0

    @property
    def sample(self) -> SampleSettings:
        return replace(MINI.sample, k=self.k, seed=self.seed)

    def select(self, selection: SelectionName) -> SelectSettings:
        return replace(MINI.select, selection=selection, m=self.m, n=self.n, seed=self.seed)

    @property
    def annotate(self) -> AnnotateSettings:
        return replace(MINI.annotate, adaptive=self.adaptive, seed=self.seed)


PRESETS = {
    "quick": LabSettings(
        questions=12,
        evaluated=60,
        candidates=16,
        per_level=25,
        seeds=1,
        bases=("verdicts",),
        adaptive=AdaptiveSettings(first=8, enough=5, most=24, block=4),
    ),
    "full": LabSettings(questions=160, evaluated=200, candidates=128, per_level=100, seeds=3),
}


@dataclass(frozen=True, slots=True)
class DataSet:
    """Solutions chosen by `selection` and labelled by `search`, a name in the study; None: by the exact checker.
    `votes`: whether its PRMs are also evaluated by best-of-N."""

    about: str
    selection: SelectionName
    search: str | None
    votes: bool = False


DATA_SETS = {
    "UnPRM": DataSet(
        "most uncertain solutions, most uncertain error (paper)", "uncertainty", "uncertainty", votes=True
    ),
    "UnPRM-literal": DataSet(
        "most uncertain solutions, most uncertain error with the last step tried too (the paper's text)",
        "uncertainty",
        "uncertainty-literal",
    ),
    "SimPRM": DataSet("least similar solutions, most uncertain error (paper)", "similarity", "uncertainty"),
    "DrawnPRM": DataSet("solutions drawn at random, most uncertain error", "random", "uncertainty"),
    "EpicPRM": DataSet(
        "most uncertain solutions, first error by adaptive binary search (paper)", "uncertainty", "adaptive_binary"
    ),
    "RanPRM": DataSet("most uncertain solutions, any step (paper)", "uncertainty", "random"),
    "BayesPRM": DataSet(
        "most uncertain solutions, first error by probabilistic bisection (ours)", "uncertainty", "bayes", votes=True
    ),
    "Exact": DataSet(
        "most uncertain solutions, labels of the exact checker: the ceiling", "uncertainty", None, votes=True
    ),
}
"""The paper's four data sets and further ones. Those of one selection hold the same solutions."""


def searches(settings: LabSettings, selection: SelectionName) -> dict[str, AnnotateSettings]:
    """The searches needed for the data sets of a selection, by their names in the study."""
    needed = [data_set.search for data_set in DATA_SETS.values() if data_set.selection == selection]
    return {name: search for name, search in variants(settings.annotate).items() if name in needed}
