"""Trains a probe of a frozen base:

    unprm train --base Qwen/Qwen2.5-Math-7B-Instruct --data steps.jsonl --output my-probe --tune none --head probe

One pass of the torch engine over the texts, in which a beginning that solutions share runs once, and then a fit. The
hidden states are kept in files that are mapped into memory, since they can be larger than it. If the same command is
given again, a killed run goes on with the pass where it was, with the same result.
"""

import hashlib
import json
import math
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from rich.progress import Progress
from transformers import PreTrainedModel

from unprm.calibration import sigmoid
from unprm.checkpoints.files import digests, fetch, load_base, load_tokenizer
from unprm.engines.batch import common
from unprm.engines.torch import attention
from unprm.engines.torch.devices import multiplies_bf16_fast
from unprm.engines.torch.engine import TorchEngine
from unprm.engines.torch.heads import margin_of
from unprm.engines.torch.plain import margins, values
from unprm.engines.torch.probe import EVEN, ProbeHead, ProbeReader
from unprm.engines.torch.quantized import widen_all
from unprm.errors import ModelInvalid
from unprm.formats.family import Probe, Verdicts
from unprm.formats.probe import ProbeConfig, ProbeFormat
from unprm.samplers.prompts import around_problem
from unprm.types import Encoded, ModelDescription
from unprm.uncertainty import surprise

from .. import resumable
from ..evaluate.metrics import Validation
from ..schema import VERDICT
from .card import write_card
from .collate import Example, read_examples
from .journal import VALIDATIONS
from .network import Compute, read_shape
from .probe_fit import Array, Features, LinearProbe, fit, split
from .processes import Processes
from .publish import PROBE_STATES, check_output, portable, write_config
from .train_settings import ProbeSummary, TrainSettings

PASS_TOKENS = {"cpu": 4_096, "cuda": 8_192}
"""Tokens of a pass, by the device's type, unless the settings say otherwise: a prefix that several steps share is read
again in each pass that has some of them, so short passes read most tokens twice."""
HELD_OUT_STATES = "validation-states"
"""Folder of the states of held-out steps."""
STATES, FIGURES, PROGRESS = "states.npy", "measures.npy", "progress.json"
READOUTS = "readouts.jsonl"
"""A row for each layer, the measures and the whole."""
LARGEST = float(np.finfo(np.float16).max)


class StatesReader(ProbeReader):
    """Keeps the `states` in a probe's layers of all tokens since `clear`, (tokens, layers, hidden). A token's value is
    the number of its row, and its log-probability; in place of margins there are the values of each step's tokens."""

    def __init__(self, network: PreTrainedModel, probe: Probe, device: torch.device) -> None:
        factor, _ = margin_of(network, Verdicts(0, 1))
        super().__init__(network, ProbeHead(1, 1), probe, device, factor)  # a head that is not asked
        self.clear()

    def clear(self) -> None:
        """Forgets all states."""
        self.states = torch.empty(0)

    def values(self, layers: Sequence[torch.Tensor]) -> torch.Tensor:
        """The rows' numbers, (n, 1)."""
        start, states = len(self.states), torch.stack(list(layers), 1)
        self.states = torch.cat([self.states, states]) if start else states
        return torch.arange(start, len(self.states), device=states.device)[:, None]

    def margins(self, item: Encoded, values: Sequence[Any]) -> list[Any]:
        ends = [position - item.response + 1 for position in item.positions]
        return [values[start:end] for start, end in zip([0, *ends], ends, strict=False)]


class FrozenBase:
    """A base that nobody trains, run by the torch engine's tree of prefixes; one text after the other if that can't
    compute its attention. `longest`: tokens of the longest text; `tokens`: of a pass."""

    def __init__(self, trainer: "ProbeTrainer", longest: int) -> None:
        network = load_base(trainer.base, trainer.compute.base)
        if trainer.compute.widens:
            widen_all(network)
        self._reader = StatesReader(network, trainer.config.readout, trainer.device)
        self._measures, self._engine = trainer.config.measures, None
        if attention.unsupported(network.get_decoder().config) is None:
            form, device = trainer.format, str(trainer.device)
            about = ModelDescription(trainer.config.name, form.family, "torch", device, str(network.dtype), longest, "")
            self._engine = TorchEngine(self._reader, form, about, trainer.tokens, 0)

    def steps(
        self, texts: Sequence[Encoded], known: Sequence[Sequence[bool]]
    ) -> Iterator[tuple[npt.NDArray[np.float16], Sequence[float]]]:
        """Of each step of which the label is `known`, the mean of the states of its tokens, weighted as `ProbeHead`
        says, (layers, hidden), and its figures of surprisal."""
        self._reader.clear()
        if self._engine:
            made, _ = self._engine.margins(texts)
            self._engine.forget()
        else:
            made = [margins(self._reader, text, *values(self._reader, [text])) for text in texts]
        kept = self._reader.states
        for step, wanted in zip(chain.from_iterable(made), chain.from_iterable(known), strict=True):
            if wanted:
                rows, logprobs = zip(*step, strict=True)
                weights = EVEN - torch.tensor(logprobs, device=kept.device)
                mean = torch.tensordot(weights / weights.sum(), kept[[int(row) for row in rows]].float(), 1)
                yield mean.clamp(-LARGEST, LARGEST).half().cpu().numpy(), surprise(logprobs, self._measures)


class States:
    """The hidden states of labelled steps, kept in a `directory`, of `examples` that `Example.whole` made, in the order
    of their ids. `hidden`: width of the states. `identity`: JSON values of all else that the states depend on."""

    def __init__(
        self, directory: Path, examples: Sequence[Example], config: ProbeConfig, hidden: int, identity: object
    ) -> None:
        self.directory, self._config = directory, config
        self.examples = sorted(examples, key=lambda example: example.encoded.ids)
        self.texts = [example.encoded for example in self.examples]
        self.known = [[not math.isnan(label) for label in example.labels] for example in self.examples]
        self.labels = [[label > VERDICT for label in each.labels if not math.isnan(label)] for each in self.examples]
        self.count = sum(map(len, self.labels))
        self._shapes: dict[str, tuple[tuple[int, ...], type[np.floating]]] = {
            STATES: ((len(config.layers), self.count, hidden), np.float16),
            FIGURES: ((self.count, len(config.measures)), np.float32),
        }
        made = json.dumps([identity, config.layers, config.measures]) + repr([self.texts, self.known])
        self._fingerprint = hashlib.sha256(made.encode()).hexdigest()

    @property
    def bytes(self) -> int:
        return sum(math.prod(shape) * np.dtype(kind).itemsize for shape, kind in self._shapes.values())

    @property
    def problems(self) -> list[str]:
        return [example.problem for example, labels in zip(self.examples, self.labels, strict=True) for _ in labels]

    @property
    def right(self) -> npt.NDArray[np.bool_]:
        """Whether each step is right, (steps,)."""
        return np.array(list(chain.from_iterable(self.labels)))

    @property
    def features(self) -> Features:
        return Features(self._config.layers, *self._mapped("r"))

    def _mapped(self, mode: Any) -> list[Any]:
        return [np.load(self.directory / name, mmap_mode=mode) for name in self._shapes]

    def reserve(self) -> int:
        """Makes room for the files, unless they are there; returns how many steps are done.

        Raises `ModelInvalid` if the disk has no room, or the files are those of another pass.
        """
        noted = self.directory / PROGRESS
        if all((self.directory / name).is_file() for name in (*self._shapes, PROGRESS)):
            progress = json.loads(noted.read_text("utf-8"))
            if progress["fingerprint"] != self._fingerprint:
                raise ModelInvalid(
                    f"{self.directory} has the states of a run with other settings or data, or another base by this "
                    "name; remove it, or choose another output directory"
                )
            return int(progress["steps"])
        self.directory.mkdir(parents=True, exist_ok=True)
        noted.unlink(missing_ok=True)
        check_room(self.bytes, shutil.disk_usage(self.directory).free, self.directory)
        for name, (shape, kind) in self._shapes.items():
            path = self.directory / name
            np.lib.format.open_memmap(path, "w+", kind, shape)
            with path.open("r+b") as file:
                # or a disk that fills up meanwhile would kill the process that writes to the mapped file
                os.posix_fallocate(file.fileno(), 0, path.stat().st_size)
        self._note(0)
        return 0

    def fill(self, base: FrozenBase, tokens: int, advance: Callable[[int], None]) -> None:
        """Runs the base over what is missing, in passes of up to `tokens` tokens. `advance` is called after each pass,
        and for those done earlier, with the number of its texts' tokens."""
        done, row = self.reserve(), 0
        states, figures = self._mapped("r+")
        for indices in passes(self.texts, tokens):
            start, row = row, row + sum(len(self.labels[index]) for index in indices)
            if row > done:
                texts, known = self.texts[indices.start : indices.stop], self.known[indices.start : indices.stop]
                for place, (mean, measured) in enumerate(base.steps(texts, known), start):
                    states[:, place], figures[place] = mean, measured
                states.flush()
                figures.flush()
                self._note(row)
            advance(sum(len(self.texts[index].ids) for index in indices))

    def _note(self, steps: int) -> None:
        progress = {"fingerprint": self._fingerprint, "steps": steps}
        resumable.replace(self.directory / PROGRESS, json.dumps(progress) + "\n")


def passes(texts: Sequence[Encoded], tokens: int) -> Iterator[range]:
    """Indices of the texts of each pass, in ascending order of ids: at most `tokens` tokens, those that texts share
    counted once; a longer text is a pass of its own."""
    start = size = 0
    for index, text in enumerate(texts):
        new = len(text.ids) - (common(texts[index - 1].ids, text.ids) if index > start else 0)
        if index > start and size + new > tokens:
            yield range(start, index)
            start, size, new = index, 0, len(text.ids)
        size += new
    yield range(start, len(texts))


def check_room(needed: int, free: int, place: Path) -> None:
    """Raises `ModelInvalid` if a disk has fewer than the needed bytes free."""
    if needed > free:
        raise ModelInvalid(
            f"the states of {place} take {needed / 1e9:,.3g} GB, and {free / 1e9:,.3g} GB are free there"
        )


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
        self.tokens = settings.batch_tokens or PASS_TOKENS[self.device.type]
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
        self.format = ProbeFormat(load_tokenizer(self.base), self.config)
        self.window = shape.max_position_embeddings
        self.compute = Compute.of(settings, self.device.type, multiplies_bf16_fast(self.device))
        identity = [digests(self.base), str(self.compute.base)]

        def read(folder: str, data: Sequence[Path], layout: Any = None) -> tuple[States, int]:
            examples, dropped = read_examples(data, layout, self.format, self.window, Example.whole)
            place = settings.output / folder
            return States(place, examples, self.config, shape.hidden_size, identity), dropped

        self.states, self.dropped = read(PROBE_STATES, settings.data, settings.layout)
        self.held_out: States | None = None
        self.dropped_held_out = 0
        if settings.validation:
            self.held_out, self.dropped_held_out = read(HELD_OUT_STATES, settings.validation)

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
        parts = {"reading": self.states} | ({"reading held-out solutions": self.held_out} if self.held_out else {})
        done = [each.reserve() == each.count for each in parts.values()]
        if not all(done):
            longest = max(len(text.ids) for each in parts.values() for text in each.texts)
            base = FrozenBase(self, longest)
            for what, each in parts.items():
                task = progress.add_task(f"{what}, tokens", total=sum(len(text.ids) for text in each.texts))
                each.fill(base, self.tokens, partial(progress.advance, task))
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
            rows=fitted.rows,
            crossed=_validated(states, fitted.whole.margins),
            held_out=_validated(self.held_out, fitted.probe.margins(self.held_out.features)) if self.held_out else None,
        )
        output = self.settings.output
        resumable.write_lines(output / READOUTS, summary.rows)
        if summary.held_out:
            resumable.write_lines(output / VALIDATIONS, [summary.held_out])
        head_of(fitted.probe).save(output)
        write_config(config, output)
        write_card(output, config, self.settings, summary)
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


def _validated(states: States, margins: Array) -> Validation:
    scores = iter(map(sigmoid, margins.tolist()))
    return Validation.of([[next(scores) for _ in labels] for labels in states.labels], states.labels)
