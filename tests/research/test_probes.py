"""The study of probes: scores are those of the solutions that they are said to be of, and no pass is repeated."""

import io
import json

import pytest
from rich.console import Console
from rich.progress import Progress

from research import probes
from tests.tiny import write_base
from tests.training.solutions import learnable
from training import resumable
from training.prm.probe import HELD_OUT_STATES, ProbeTrainer
from training.prm.train_settings import TrainSettings
from training.schema import LabelledSolution
from unprm.errors import ModelInvalid
from unprm.models.load import load_engine


def _benchmark(name, seed):
    for number, solution in enumerate(learnable(24, seed)):
        steps = [" What is asked?\n", *solution.steps]
        error = next((k for k, right in enumerate(solution.labels, 1) if not right), -1)
        steps = steps if error < 0 else [*steps, "And so on."]
        yield {"id": f"{name}-{number}", "problem": f"{name} {seed} + {number // 2}?", "steps": steps, "label": error,
               "generator": "", "final_answer_correct": error < 0}  # fmt: skip


@pytest.fixture(scope="module")
def trainer(tmp_path_factory):
    """That of a trained probe of a base of two layers, tested on two sets."""
    place = tmp_path_factory.mktemp("probes")
    write_base(place / "base", layers=2)
    rows = [
        LabelledSolution(f"what is {number // 2}?", ("What?", *each.steps), (None, *each.labels))
        for number, each in enumerate(learnable(160, 0))
    ]
    resumable.write_lines(place / "steps.jsonl", rows)
    sets = {name: place / f"{name}.jsonl" for name in ("gsm8k", "math")}
    for seed, (name, path) in enumerate(sets.items(), 1):
        path.write_text("".join(json.dumps(row) + "\n" for row in _benchmark(name, seed)), "utf-8")
    settings = TrainSettings(
        base=str(place / "base"), data=(place / "steps.jsonl",), validation=tuple(sets.values()), output=place / "prm",
        tune="none", head="probe", batch_tokens=300, bf16=False,
    )  # fmt: skip
    ProbeTrainer(settings).train(Progress(disable=True))
    return ProbeTrainer(settings)


def test_a_held_out_solution_gets_the_scores_that_the_served_probe_gives_it(trainer, tmp_path):
    held_out = probes.HeldOut(trainer)
    engine = load_engine(str(trainer.settings.output), dtype="float32")
    try:
        fitted = probes.probe.fit(trainer.states.features, trainer.states.right, trainer.states.problems, 0)
        scores = held_out.scores(fitted.probe.margins(held_out.states.features))
        for name, solutions in held_out.sets.items():
            assert len(solutions) == 24
            assert all("And so on." not in each.steps for each in solutions)
            texts = [[step.strip() for step in each.steps] for each in solutions]  # as the training read them
            encoded = [engine.format.encode(each.problem, steps) for each, steps in zip(solutions, texts, strict=True)]
            for solution, served in zip(solutions, engine.score(encoded), strict=True):
                assert scores[name][solution.id] == pytest.approx(served.values, abs=2e-3)
    finally:
        engine.close()


def test_tables_are_written(trainer, tmp_path):
    made = probes.write(trainer, tmp_path, Console(file=io.StringIO()))
    assert made.count(probes.PROBE) == 2 + 1
    readouts = (tmp_path / "readouts.md").read_text("utf-8")
    assert all(f"layer {layer} " in readouts for layer in trainer.config.layers)


def test_a_training_that_has_not_ended_is_told(trainer, tmp_path):
    made = next((trainer.settings.output / HELD_OUT_STATES).glob("*.safetensors"))
    made.rename(tmp_path / "elsewhere")
    with pytest.raises(ModelInvalid, match="has not ended: repeat its command"):
        probes.write(trainer, tmp_path, Console(file=io.StringIO()))
    (tmp_path / "elsewhere").rename(made)
