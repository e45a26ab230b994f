"""Trains a probe of a frozen base:

    unprm train --base Qwen/Qwen2.5-Math-7B-Instruct --data steps.jsonl --output my-probe --tune none --head probe

One pass over the texts, whose hidden states are kept, and then a fit. If the same command is given again, a killed run
goes on with the pass where it was, with the same result.
"""

from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np
import torch
from rich.progress import Progress

from unprm.calibration import sigmoid
from unprm.checkpoints.files import digests, fetch, load_base, load_tokenizer
from unprm.engines.torch.devices import multiplies_bf16_fast
from unprm.engines.torch.probe import ProbeHead
from unprm.errors import ModelInvalid
from unprm.formats.probe import ProbeConfig, ProbeFormat
from unprm.samplers.prompts import around_problem

from .. import resumable
from ..evaluate.metrics import Validation
from .card import write_probe_card
from .collate import Example, read_examples
from .journal import VALIDATIONS
from .network import Compute, read_shape
from .processes import Processes
from .publish import check_output, portable, write_config
from .readout import CrossFitted, FittedProbe, LinearProbe, fit, split
from .states import KEPT, Frozen, States
from .train_settings import ProbeSummary, ReadoutRow, TrainSettings

PASS_TOKENS = {"cpu": 4_096, "cuda": 8_192}
"""Tokens of a pass, by the device's type, unless the settings say otherwise: a prefix that several steps share is read
again in each pass that has some of them, so short passes read most tokens twice."""
KEPT_OF_HELD_OUT = "validation-states"
"""Folder of the states of held-out steps."""
READOUTS = "readouts.jsonl"
"""A row for each layer, the measures and the whole."""


class ProbeTrainer:
    """One run: the constructor loads data and base, `train` trains.

    Raises `ModelInvalid` if several processes were started, or the base can't be read; `OutputMismatch` if the output
    directory holds a PRM of another kind.
    """

    def __init__(self, settings: TrainSettings) -> None:
        processes = Processes.join()
        if processes.count > 1:
            raise ModelInvalid(
                f"a probe is trained by one process, not by {processes.count}: start it without torchrun"
            )
        if settings.tune != "none":
            raise ModelInvalid(f"ProbeTrainer trains a probe, with tune 'none', not {settings.tune!r}")
        check_output(settings)
        self.settings, self.device = settings, processes.device
        self.base = fetch(settings.base, settings.base_revision)
        shape = read_shape(str(self.base))
        before, after = around_problem(self.base)
        self.config = ProbeConfig(
            name=settings.name or settings.output.name,
            base=portable(settings.base, settings.output),
            base_revision=settings.base_revision,
            before=before,
            after=after,
            layers=candidates(shape.num_hidden_layers),
        )
        form = ProbeFormat(load_tokenizer(self.base), self.config)
        window = shape.max_position_embeddings
        examples, self.dropped = read_examples(settings.data, settings.layout, form, window, Example.whole)
        compute = Compute.of(settings, self.device.type, multiplies_bf16_fast(self.device))
        self.network = Frozen(load_base(self.base, compute.base), compute).to(self.device)
        identity = [digests(self.base), str(compute.base), compute.autocast]

        def states(folder: str, of: Sequence[Example]) -> States:
            place = settings.output / folder
            return States(place, of, self.network, self.config.layers, self.config.measures, identity)

        self.states = states(KEPT, examples)
        self.held_out: States | None = None
        self.dropped_held_out = 0
        if settings.validation:
            held_out, self.dropped_held_out = read_examples(settings.validation, None, form, window, Example.whole)
            self.held_out = states(KEPT_OF_HELD_OUT, held_out)

    def __str__(self) -> str:
        all_states = [self.states, *([self.held_out] if self.held_out else [])]
        steps, size = sum(each.count for each in all_states), sum(each.bytes for each in all_states)
        return (
            f"{steps:,} labelled steps: their states take {size / steps:,.0f} bytes each, {size / 1e9:,.3g} GB in "
            f"{self.settings.output}"
        )

    def train(self, progress: Progress) -> ProbeSummary:
        """Runs the base over what a killed run left, fits the probe, and writes it, its configuration and its card.

        Raises `ModelInvalid` before the pass if the labels allow no fit, or the disk has no room.
        """
        split(self.states.right, self.states.problems, self.settings.seed)
        for states in (self.states, self.held_out):
            if states:
                states.reserve()
        tokens = self.settings.batch_tokens or PASS_TOKENS[self.device.type]
        for states, what in ((self.states, "reading"), (self.held_out, "reading held-out solutions")):
            if states:
                total = sum(len(example.encoded.ids) for example in states.examples)
                task = progress.add_task(f"{what}, tokens", total=total)
                states.fill(tokens, partial(progress.advance, task))
        task = progress.add_task("fitting, read-outs", total=len(self.config.layers))
        states, right = self.states, self.states.right
        fitted = fit(states.features, right, states.problems, self.settings.seed, partial(progress.advance, task))
        config = self.config.model_copy(update={"layers": fitted.probe.layers})
        summary = ProbeSummary(
            examples=len(states.examples),
            dropped_too_long=self.dropped,
            steps=states.count,
            right=float(right.mean()),
            layers=config.layers,
            rows=tuple(_rows(fitted)),
            crossed=_validated(states, fitted.whole.margins),
            held_out=_validated(self.held_out, fitted.probe.margins(self.held_out.features)) if self.held_out else None,
        )
        output = self.settings.output
        resumable.write_lines(output / READOUTS, summary.rows)
        if summary.held_out:
            resumable.write_lines(output / VALIDATIONS, [summary.held_out])
        head_of(fitted.probe).save(output)
        write_config(config, output)
        write_probe_card(output, config, self.settings, summary)
        return summary


def candidates(depth: int) -> tuple[int, ...]:
    """The layers that a probe may read of a base of this depth: every second from a quarter on, the last included."""
    return tuple(layer for layer in range(1, depth + 1) if layer >= depth / 4 and (depth - layer) % 2 == 0)


def head_of(probe: LinearProbe) -> ProbeHead:
    """The head that the engine reads, in float32."""
    head = ProbeHead(len(probe.token_weight), len(probe.measure_weight))
    arrays = {
        "token.weight": probe.token_weight[None],
        "measures.weight": probe.measure_weight[None],
        "measures.bias": np.array([probe.bias]),
    }
    head.load_state_dict({name: torch.from_numpy(array).float() for name, array in arrays.items()})
    return head


def _rows(fitted: FittedProbe) -> Iterator[ReadoutRow]:
    def row(name: str, figures: CrossFitted, layer: int | None = None) -> ReadoutRow:
        chosen = layer is None or layer in fitted.probe.layers
        return ReadoutRow(name, layer, chosen, figures.strength, figures.log_loss, figures.auroc)

    yield row("measures of surprisal", fitted.measures)
    for layer, figures in fitted.readouts.items():
        yield row(f"layer {layer}", figures, layer)
    yield row("all of it", fitted.whole)


def _validated(states: States, margins: np.ndarray[tuple[int, ...], np.dtype[np.floating]]) -> Validation:
    scores = iter(map(sigmoid, margins.tolist()))
    return Validation.of([[next(scores) for _ in labels] for labels in states.labels], states.labels)
