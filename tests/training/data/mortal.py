"""Annotates until it is killed, by itself and in the midst of a call."""

import asyncio
import io
import os
import signal
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from tests.training.scripted import ScriptedSampler
from training.data.annotate import annotate as annotate_all
from training.stage_settings import AnnotateSettings
from unprm.answers.equivalence import Equivalence
from unprm.types import Completion


class MortalSampler(ScriptedSampler):
    """Kills its process after this many calls."""

    def __init__(self, calls: int) -> None:
        super().__init__()
        self.calls = calls

    async def complete(self, prompt: Sequence[int], count: int, seed: int, affinity: str) -> list[Completion]:
        await super().complete(prompt, 1, seed, affinity)  # others have begun
        self.calls -= 1
        if self.calls < 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return await super().complete(prompt, count, seed, affinity)


def annotate(selected: Path, output: Path, settings: AnnotateSettings, calls: int) -> None:
    """Goes on with what another run began."""
    console = Console(file=io.StringIO())
    sampler = MortalSampler(calls)
    asyncio.run(annotate_all(selected, sampler, Equivalence(), output, settings, 2, console))
