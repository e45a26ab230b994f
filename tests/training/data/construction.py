"""The stages from questions to labels, with a scripted sampler."""

import asyncio
import io

from rich.console import Console

from tests.training import lines
from tests.training.scripted import ScriptedSampler
from training.data.annotate import annotate
from training.data.sample import make_mini, sample
from training.data.select import Selector, select
from training.stage_settings import AnnotateSettings, SampleSettings, SelectSettings

QUESTIONS = make_mini(12, seed=1)
SAMPLE = SampleSettings(k=12)
ANNOTATE = AnnotateSettings(search="sequential")


def silent():
    return Console(file=io.StringIO())


def run_sample(place, sampler=None, settings=SAMPLE, concurrency=4):
    sampler = sampler or ScriptedSampler()
    work = sample(QUESTIONS, sampler, place / "samples.jsonl", settings, concurrency, silent())
    return asyncio.run(work)


def run_select(place, equivalence, settings=None):
    selector = Selector(equivalence, ScriptedSampler().decode, settings or SelectSettings())
    select(place / "samples.jsonl", place / "selected.jsonl", selector, silent())
    return selector


def run_annotate(place, equivalence, settings=ANNOTATE, sampler=None, concurrency=4, name="annotated", console=None):
    sampler, output = sampler or ScriptedSampler(), place / f"{name}.jsonl"
    shown = console or silent()
    work = annotate(place / "selected.jsonl", sampler, equivalence, output, settings, concurrency, shown)
    failures = asyncio.run(work)
    return failures, output


def records_of(path):
    return sorted(lines.read(path), key=lambda record: record["id"])
