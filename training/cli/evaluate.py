"""The commands that evaluate a PRM: `unprm evaluate --help`."""

import os
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from rich.console import Console
from typer import Argument, BadParameter, Exit, Option, echo

from unprm.commands import group, with_options
from unprm.types import Aggregate

from .. import resumable
from ..stage import directory, progress
from ..stage_settings import ReadingSettings

if TYPE_CHECKING:
    from ..evaluate.scorers import Scorer

app = group("Measure a PRM on a benchmark.")
console = Console(stderr=True)

OutputOption = Annotated[
    Path, Option(help="Directory for scores and results; the same command goes on there.", callback=directory)
]
BenchmarkOption = Annotated[
    str, Option(help="File or directory of JSON lines or arrays (.gz too), or the hub's data set.")
]


@dataclass(frozen=True, slots=True)
class PrmOptions:
    """The PRM that scores: loaded in this process, or served by a server."""

    model: Annotated[str, Option(help="The PRM: unprm-mini, a directory made by `train`, or a hub name.")] = (
        "unprm-mini"
    )
    adapter: Annotated[str | None, Option(help="Its adapter, if the model is a base.")] = None
    family: Annotated[str | None, Option(help="Its model family, if not detected: see `unprm models`.")] = None
    separator: Annotated[str | None, Option(help="Text after each step, for a checkpoint of TRL's.")] = None
    engine: Annotated[
        Literal["auto", "torch", "vllm"], Option(help="auto: vLLM on CUDA if installed, otherwise torch.")
    ] = "auto"
    server: Annotated[str | None, Option(help="Call the server at this URL instead of a model here.")] = None

    @contextmanager
    def scoring(self) -> "Iterator[Scorer]":
        from ..evaluate.scorers import EngineScorer, ServerScorer

        if self.server:
            with closing(ServerScorer(self.server, os.environ.get("UNPRM_API_KEY"))) as scorer:
                yield scorer
            return
        from unprm.models.load import load_engine

        options = {name: getattr(self, name) for name in ("model", "adapter", "family", "separator", "engine")}
        with closing(load_engine(**options)) as loaded:
            yield EngineScorer(loaded)


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedOptions(PrmOptions):
    """A PRM and the step labels to which something is fitted, which is kept in the directory of the model's copy."""

    data: Annotated[Path, Option(help="Step labels not used in training; layouts as for `train`.")]
    output: Annotated[Path | None, Option(help="Directory of the model's copy; default: the model's.")] = None

    @property
    def place(self) -> Path:
        """Raises `BadParameter` if it is no directory."""
        place = self.output or Path(self.adapter or self.model)
        if not place.is_dir():
            raise BadParameter(f"{place} is not a directory: name that of the model's copy", param_hint="--output")
        return place


@app.command()
@with_options
def processbench(
    output: OutputOption,
    prm: PrmOptions,
    data: BenchmarkOption = "Qwen/ProcessBench",
) -> None:
    """Find the first wrong step of solutions: ProcessBench's F1, next to published results."""
    from ..evaluate import processbench

    subsets = processbench.load_processbench(data)
    with prm.scoring() as scorer:
        echo(_measured(processbench, subsets, scorer, output), nl=False)


@app.command()
@with_options
def prmbench(
    output: OutputOption,
    prm: PrmOptions,
    data: BenchmarkOption = "hitsmy/PRMBench_Preview",
) -> None:
    """Tell right steps from wrong ones: PRMBench's PRMScore by kind of error, next to published results."""
    from ..evaluate import prmbench

    benchmark = prmbench.load_prmbench(data)
    with prm.scoring() as scorer:
        echo(_measured(prmbench, benchmark, scorer, output), nl=False)


@app.command()
@with_options
def best_of_n(
    candidates: Annotated[Path, Argument(help="Samples of `unprm sample`, or JSON lines.", exists=True)],
    output: OutputOption,
    prm: PrmOptions,
    reading: ReadingSettings,
    reward: Annotated[
        str, Option(help="Field of each candidate with its reward or step scores, used instead of a model.")
    ] = "",
    seed: Annotated[int, Option(help="Seed of the draws.")] = 0,
) -> None:
    """Elect an answer among N candidates: the accuracy of all votes at N = 1, 2, 4 … 128, and over all candidates. The
    table is also written to votes.md."""
    from ..evaluate import best_of_n, pool

    questions = pool.read_pool(candidates, reward)
    with ExitStack() as stack:
        scorer = None if reward else stack.enter_context(prm.scoring())
        results = best_of_n.evaluate(questions, scorer, output, console, seed, reading)
    echo(best_of_n.markdown(results), nl=False)


@app.command()
@with_options
def trajectories(
    data: Annotated[Path, Argument(help="AgentProcessBench: JSON lines with labels of steps.", exists=True)],
    output: OutputOption,
    prm: PrmOptions,
    recorded: Annotated[
        bool, Option("--recorded", help="Measure people and the recorded judges instead of a model.")
    ] = False,
    evidence: Annotated[
        Literal["before", "after"], Option(help="Whether a step is judged with what came after it.")
    ] = "after",
) -> None:
    """Judge the steps of agents' trajectories, and find the best of several of a task, next to what people say. The
    table is also written to trajectories.md."""
    from unprm.trajectories import Reading

    from ..evaluate import trajectories

    rows = trajectories.read_trajectories(data)
    output.mkdir(parents=True, exist_ok=True)
    if recorded:
        scores = trajectories.recorded(rows)
    else:
        reading = Reading(evidence=evidence)
        with prm.scoring() as scorer:
            scores = {scorer.identity.model: trajectories.score(rows, scorer, reading, output, console)}
    measured = {name: trajectories.measure(rows, each) for name, each in scores.items()}
    table = trajectories.table(rows, measured)
    if judges := [each for name, each in scores.items() if name != trajectories.PEOPLE and recorded]:
        against = trajectories.against_min(rows, judges)
        shown = "; ".join(f"{name} {share.in_percent}" for name, share in against.items())
        table += f"Against the minimum, mean of the {len(judges)} judges, in points: {shown}.\n"
    _write_table(output / "trajectories.md", table)


@app.command()
@with_options
def threshold(prm: FittedOptions) -> None:
    """Set below which score a step is an error, from 20 or more labelled solutions of your own; refused unless it
    helps."""
    from unprm.calibration import Calibration

    from ..prm.calibrate import choose_threshold, read_traces, score

    place, traces = prm.place, read_traces(prm.data)
    before = Calibration.read(place)
    with prm.scoring() as scorer, progress(console) as shown:
        scores = score(scorer, [trace for trace, _ in traces], shown)
    chosen = choose_threshold([first for _, first in traces], scores)
    echo(str(chosen))
    if chosen.gain.low <= 0:
        console.print(f"[yellow]it is not known to help: {place} keeps {before.threshold:g}[/yellow]", soft_wrap=True)
        raise Exit(1)
    replace(before, threshold=chosen.threshold).write(place)
    console.print(f"wrote it to {place}", soft_wrap=True)


@app.command("all")
@with_options
def every(
    output: Annotated[
        Path,
        Option(
            help="Directory for processbench/NAME, prmbench/NAME, best-of-n/NAME and the page NAME.md; the same "
            "command goes on there.",
            callback=directory,
        ),
    ],
    prm: PrmOptions,
    processbench_data: Annotated[
        str, Option("--processbench", help="ProcessBench: file, directory or the hub's data set.")
    ] = "Qwen/ProcessBench",
    prmbench_data: Annotated[
        str, Option("--prmbench", help="PRMBench: file, directory or the hub's data set.")
    ] = "hitsmy/PRMBench_Preview",
    samples: Annotated[
        Path | None, Option(help="Candidates for best-of-n, which is left out without them.", exists=True)
    ] = None,
) -> None:
    """Measure a PRM on ProcessBench, PRMBench and best-of-n at the defaults: one page beside published results."""
    from ..evaluate import best_of_n, pool, prmbench, processbench

    subsets, benchmark = processbench.load_processbench(processbench_data), prmbench.load_prmbench(prmbench_data)
    questions = None if samples is None else pool.read_pool(samples)
    with prm.scoring() as scorer:
        name = Path(scorer.identity.model).name
        tables = [_measured(processbench, subsets, scorer, output / "processbench" / name)]
        tables.append(_measured(prmbench, benchmark, scorer, output / "prmbench" / name))
        if questions is not None:
            votes = best_of_n.evaluate(questions, scorer, output / "best-of-n" / name, console)
            tables.append(best_of_n.markdown(votes))
    _write_table(output / f"{name}.md", "\n".join(tables))


@app.command("calibrate-votes")
def calibrate_votes(
    output: Annotated[Path, Option(help="File for the calibration: `serve --vote-calibration`.")],
    run: Annotated[Path | None, Argument(help="Directory that `best-of-n --output` wrote.", file_okay=False)] = None,
    journal: Annotated[
        Path | None,
        Option(help="Instead of RUN, a server's journal, whose votes were judged by /feedback.", exists=True),
    ] = None,
    caller: Annotated[
        list[str] | None, Option(help="Only the journal's feedback by this key, by its name; repeat for more.")
    ] = None,
    model: Annotated[
        str | None, Option(help="Name of the served PRM whose rewards these are. Default: the run's.")
    ] = None,
    aggregate: Annotated[
        Aggregate | None, Option(help="How rewards come from step scores.", show_default="min")
    ] = None,
    stable: Annotated[
        float | None,
        Option(min=0, max=0.99, help="Of a gateway that stops early. Default: all candidates."),
    ] = None,
    round: Annotated[int, Option(min=1, help="Its candidates at a time.")] = 4,
) -> None:
    """Calibrate `risk`: find above which certainty at most the requested share of accepted answers is wrong."""
    from datetime import date

    from unprm.election.acceptance import fewest

    from ..evaluate import acceptance

    today = date.today().isoformat()
    if run and not journal:
        stopping = {} if stable is None else {"stable": stable, "round": round}
        made = acceptance.calibrated(run, today, model, aggregate, stopping)
    elif journal and not run:
        if output.exists() and output.samefile(journal):
            raise BadParameter("it is the journal", param_hint="--output")
        made, judged, left_out = acceptance.recalibrated(journal, today, caller or ())
        of_each = ", ".join(f"{count} of {name or 'no named key'}" for name, count in judged.most_common())
        console.print(f"feedback: {of_each}", markup=False, soft_wrap=True)
        if left_out:
            console.print(f"{left_out} votes are left out: not the model, settings or kind of answers of the others")
    else:
        raise BadParameter("expected one of RUN and --journal")
    made.write(output)
    for strategy, elections in made.elections.items():
        if reason := made.disorder(strategy):
            console.print(f"[yellow]{strategy} is not calibrated: {reason}[/yellow]", soft_wrap=True)
            continue
        lowest = made.threshold(strategy, 0.05)
        accepted = sum(lowest is not None and value >= lowest for value, _ in elections)
        needed = fewest(0.05, made.confidence)
        few = f"; that takes {needed} questions or more" if len(elections) < needed else ""
        told = f"{strategy}: at a risk of 5 %, {accepted} of {len(elections)} answers are accepted{few}"
        console.print(told, soft_wrap=True)


def _measured(benchmark: Any, solutions: Any, scorer: "Scorer", output: Path) -> str:
    """The table of a benchmark, which is a module of `evaluate`."""
    return str(benchmark.markdown(scorer.identity.model, benchmark.evaluate(solutions, scorer, output, console)))


def _write_table(output: Path, table: str) -> None:
    resumable.replace(output, table)
    echo(table, nl=False)
