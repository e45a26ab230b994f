"""What is compared in the lab, and how much of everything."""

from dataclasses import dataclass, field, replace

from training.settings import AdaptiveSettings, AnnotateSettings, SampleSettings, SelectionName, SelectSettings

LONGEST = 192
"""Tokens of a solution or a rollout at the most."""
VERDICTS = "Y", "N"
"""Tokens of the verdicts on right and wrong steps, which the base has never seen. It learned `+` and `-` from the exact
checker when it was pretrained; so what a PRM says with these comes from its own data."""


@dataclass(frozen=True, slots=True)
class LabSettings:
    """`questions`: that the data sets are made of, `k` samples each, of which `m` right and `n` wrong ones are
    selected: a question of the domain has few wrong solutions that differ. `evaluated`: other questions, with
    `candidates` each for best-of-N. `per_level`: wrong solutions per level of the benchmark of first errors, and as
    many right ones. `seeds`: PRMs per data set. `adaptive`: smaller than the paper's, as the model is."""

    questions: int
    evaluated: int
    candidates: int
    per_level: int
    seeds: int
    k: int = 32
    m: int = 1
    n: int = 3
    adaptive: AdaptiveSettings = field(default_factory=lambda: AdaptiveSettings(first=8, enough=5, most=24, block=4))
    epochs: int = 2
    batch_size: int = 32
    seed: int = 0

    @property
    def sample(self) -> SampleSettings:
        """Of the questions that the data sets are made of."""
        return SampleSettings(k=self.k, max_tokens=LONGEST, seed=self.seed)

    def select(self, selection: SelectionName) -> SelectSettings:
        """Of the samples of one question."""
        return SelectSettings(selection=selection, m=self.m, n=self.n, seed=self.seed)

    @property
    def annotate(self) -> AnnotateSettings:
        """What all searches have in common."""
        return AnnotateSettings(adaptive=self.adaptive, max_tokens=LONGEST, seed=self.seed)


PRESETS = {
    "quick": LabSettings(questions=16, evaluated=60, candidates=16, per_level=25, seeds=1),
    "full": LabSettings(questions=300, evaluated=200, candidates=128, per_level=100, seeds=3),
}


@dataclass(frozen=True, slots=True)
class DataSet:
    """Solutions chosen by `selection` and labelled by the search `labels`; by the exact checker if that is None."""

    about: str
    selection: SelectionName
    labels: AnnotateSettings | None


def data_sets(settings: LabSettings) -> dict[str, DataSet]:
    """The paper's four data sets, and ours, by name."""
    common = settings.annotate
    return {
        "UnPRM": DataSet("most uncertain solutions, most uncertain error (paper)", "uncertainty", common),
        "SimPRM": DataSet("least similar solutions, most uncertain error (paper)", "similarity", common),
        "EpicPRM": DataSet(
            "most uncertain solutions, first error by adaptive binary search (paper)",
            "uncertainty",
            replace(common, search="adaptive_binary"),
        ),
        "RanPRM": DataSet(
            "most uncertain solutions, any step (paper)", "uncertainty", replace(common, search="random")
        ),
        "BayesPRM": DataSet(
            "most uncertain solutions, first error by probabilistic bisection (ours)",
            "uncertainty",
            replace(common, search="bayes", measure="surprisal_max"),
        ),
        "DrawnPRM": DataSet("solutions drawn at random, most uncertain error", "random", common),
        "Exact": DataSet("most uncertain solutions, labels of the exact checker: the ceiling", "uncertainty", None),
    }
