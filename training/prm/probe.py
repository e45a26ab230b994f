"""Trains a probe of a frozen base:

    unprm train --base Qwen/Qwen2.5-Math-7B-Instruct --data steps.jsonl --output my-probe --tune none --head probe

The torch engine runs over the texts, in passes in which a beginning that solutions share runs once; then the probe is
fitted. If the same command is given again, a killed run goes on with the pass where it was, with the same result.
"""

import hashlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from rich.progress import Progress
from safetensors.numpy import load_file, save
from transformers import PreTrainedModel

from unprm.calibration import sigmoid
from unprm.checkpoints.files import digests, fetch, load_base, load_tokenizer
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
from unprm.types import Encoded, ModelDescription, common_prefix
from unprm.uncertainty import surprise

from .. import resumable
from ..evaluate.metrics import Validation
from ..schema import VERDICT
from ..stage_settings import LayoutName
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
            about = ModelDescription(
                name=trainer.config.name,
                family=form.family,
                engine="torch",
                device=device,
                dtype=str(network.dtype),
                max_tokens=longest,
            )
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
    """Labelled steps of `examples` that `Example.whole` made, in the order of their ids, and what a base makes of them,
    kept in a `directory`: a file for each pass. `settings`: JSON values of all that the states depend on."""

    def __init__(self, directory: Path, examples: Sequence[Example], settings: Mapping[str, Any]) -> None:
        self.examples = sorted(examples, key=lambda example: example.encoded.ids)
        self.texts = [example.encoded for example in self.examples]
        self.known = [[not math.isnan(label) for label in example.labels] for example in self.examples]
        self.labels = [[label > VERDICT for label in each.labels if not math.isnan(label)] for each in self.examples]
        self.problems = [each.problem for each, labels in zip(self.examples, self.labels, strict=True) for _ in labels]
        self.right = np.array(list(chain.from_iterable(self.labels)))
        """Whether each step is right, (steps,)."""
        self._passes = list(passes(self.texts, settings["tokens"]))
        self._directory, self._layers = directory, settings["layers"]
        texts = hashlib.sha256(repr((self.texts, self.known)).encode()).hexdigest()
        self._config = {"stage": "states", **settings, "texts": texts}

    def _file(self, indices: range) -> Path:
        return self._directory / f"{indices.start}.safetensors"

    @property
    def missing(self) -> list[range]:
        """The passes that were not made. Raises `OutputMismatch` if the files are those of other passes."""
        resumable.configure(self._directory / "states", self._config)
        return [indices for indices in self._passes if not self._file(indices).is_file()]

    @property
    def features(self) -> Features:
        """What all passes made."""
        made = [load_file(self._file(indices)) for indices in self._passes]
        states, measures = (np.concatenate([each[name] for each in made]) for name in ("states", "measures"))
        return Features(self._layers, states.swapaxes(0, 1), measures)

    def fill(self, base: FrozenBase, advance: Callable[[int], None]) -> None:
        """Runs the base over what is missing. `advance` is called after each pass, with its number of tokens."""
        for indices in self.missing:
            texts = self.texts[indices.start : indices.stop]
            made = base.steps(texts, self.known[indices.start : indices.stop])
            states, measures = (np.array(each) for each in zip(*made, strict=True))
            resumable.replace(self._file(indices), save({"states": states, "measures": measures.astype(np.float32)}))
            advance(sum(len(text.ids) for text in texts))


def passes(texts: Sequence[Encoded], tokens: int) -> Iterator[range]:
    """Indices of the texts of each pass, in ascending order of ids: at most `tokens` tokens, those that texts share
    counted once; a longer text is a pass of its own."""
    start = size = 0
    for index, text in enumerate(texts):
        new = len(text.ids) - (common_prefix(texts[index - 1].ids, text.ids) if index > start else 0)
        if index > start and size + new > tokens:
            yield range(start, index)
            start, size, new = index, 0, len(text.ids)
        size += new
    yield range(start, len(texts))


class ProbeTrainer:
    """One run: the constructor loads data and base, `train` trains.

    Raises `ModelInvalid` if several processes were started, or the base can't be read; `OutputMismatch` if the output
    directory holds a PRM of another kind.
    """

    def __init__(self, settings: TrainSettings) -> None:
        self.processes = Processes.join()
        if self.processes.count > 1:
            raise ModelInvalid(
                f"a probe is trained by one process, not by {self.processes.count}: start it without torchrun"
            )
        check_output(settings)
        self.settings, self.device = settings, self.processes.device
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
        window = shape.max_position_embeddings
        self.compute = Compute.of(settings, self.device.type, multiplies_bf16_fast(self.device))
        of_states = {"base": digests(self.base), "dtype": str(self.compute.base), "tokens": self.tokens}
        of_states |= {"layers": self.config.layers, "measures": self.config.measures}

        def read(folder: str, data: Sequence[Path], layout: LayoutName | None = None) -> tuple[States, int]:
            examples, dropped = read_examples(data, layout, self.format, window, Example.whole)
            return States(settings.output / folder, examples, of_states), dropped

        self.states, self.dropped = read(PROBE_STATES, settings.data, settings.layout)
        self.held_out: States | None = None
        self.dropped_held_out = 0
        if settings.validation:
            self.held_out, self.dropped_held_out = read(HELD_OUT_STATES, settings.validation)

    def plan(self) -> str:
        """What the run is going to do, in a line."""
        problems = len(set(self.states.problems))
        return f"a probe of {len(self.states.right):,} labelled steps of {problems:,} problems"

    def train(self, progress: Progress) -> ProbeSummary:
        """Runs the base over what a killed run left, fits the probe, and writes it, its configuration and its card.

        Raises `ModelInvalid` before the first pass if the labels allow no fit.
        """
        split(self.states.right, self.states.problems, self.settings.seed)
        parts = {"reading": self.states} | ({"reading held-out solutions": self.held_out} if self.held_out else {})
        if any(each.missing for each in parts.values()):
            longest = max(len(text.ids) for each in parts.values() for text in each.texts)
            base = FrozenBase(self, longest)
            for what, each in parts.items():
                left = sum(len(each.texts[index].ids) for indices in each.missing for index in indices)
                each.fill(base, partial(progress.advance, progress.add_task(f"{what}, tokens", total=left)))
        task = progress.add_task("fitting, read-outs", total=len(self.config.layers))
        states, right = self.states, self.states.right
        fitted = fit(states.features, right, states.problems, self.settings.seed, partial(progress.advance, task))
        config = self.config.model_copy(update={"layers": fitted.probe.layers})
        summary = ProbeSummary(
            examples=len(states.examples),
            dropped_too_long=self.dropped,
            steps=len(right),
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
