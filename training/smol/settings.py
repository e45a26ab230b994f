"""Settings of the study on SmolLM2: the sizes of its stages."""

from dataclasses import dataclass, replace
from pathlib import Path

from unprm.models import smol

from ..settings import LINEAR, AdaptiveSettings, AnnotateSettings, SampleSettings, SelectSettings, TrainSettings


@dataclass(frozen=True, slots=True)
class SmolSettings:
    """`reasoner_variants`, `prm_variants`: versions of each easy question with other numbers. `reasoner_gsm8k`,
    `prm_gsm8k`: numbers of GSM8K's questions, those with the shortest solutions. `k`: solutions sampled for each easy
    question that the PRM learns from. `tests`, `tests_gsm8k`: held-out easy questions of each source, and of GSM8K,
    with `candidates` each; `labelled`: solutions of ProcessBench, and of those that teachers labelled."""

    reasoner_variants: int = 2
    reasoner_gsm8k: int = 1400
    prm_variants: int = 3
    prm_gsm8k: int = 500
    k: int = 4
    tests: int = 60
    tests_gsm8k: int = 40
    labelled: int = 120
    candidates: int = 16
    seed: int = 0

    @property
    def sample(self) -> SampleSettings:
        """Sampling of easy questions, for the PRM and the study."""
        return SampleSettings(k=self.k, max_tokens=96, seed=self.seed)

    @property
    def candidates_easy(self) -> SampleSettings:
        """Sampling of the held-out easy questions."""
        return SampleSettings(k=self.candidates, max_tokens=96, seed=self.seed)

    @property
    def candidates_gsm8k(self) -> SampleSettings:
        """Sampling of the held-out questions of GSM8K."""
        return SampleSettings(k=self.candidates, max_tokens=256, seed=self.seed)

    @property
    def select(self) -> SelectSettings:
        """Selection for the study; the errors of a solution with two steps need no search."""
        return SelectSettings(m=2, n=3, min_steps=3, seed=self.seed)

    @property
    def annotate(self) -> AnnotateSettings:
        """What the searches have in common."""
        adaptive = AdaptiveSettings(first=6, enough=4, most=12, block=3)
        return AnnotateSettings(adaptive=adaptive, max_tokens=96, seed=self.seed)

    def reasoner(self, output: Path) -> TrainSettings:
        """How the reasoner is fine-tuned."""
        return replace(self._lora(output), learning_rate=1e-3, warmup=0.05, bf16=True)

    def prm(self, data: Path, start: Path, output: Path) -> TrainSettings:
        """How the PRM is trained, from the reasoner's adapter on."""
        return replace(
            self._lora(output),
            data=(data,),
            name=smol.PRM,
            start=start,
            learning_rate=5e-4,
            batch_size=64,
            share_prefixes=True,
            checkpoint_every=20,
        )

    def _lora(self, output: Path) -> TrainSettings:
        """What both have in common: the second adapter begins with the first's weights."""
        return TrainSettings(
            base=smol.NAME,
            data=(),
            output=output,
            epochs=1,
            batch_tokens=1024,
            lora_rank=16,
            lora_alpha=32,
            lora_dropout=0.0,
            lora_targets=LINEAR,
            seed=self.seed,
        )
