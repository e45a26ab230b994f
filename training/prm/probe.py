"""Trains a probe of a frozen base:

    unprm train --base Qwen/Qwen2.5-Math-7B-Instruct --data steps.jsonl --output my-probe --tune none --head probe

The torch engine runs over the texts, in passes in which a beginning that solutions share runs once; then the probe is
fitted. If the same command is given again, a killed run goes on with the pass where it was, with the same result.
"""

import hashlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from rich.progress import Progress
from safetensors.numpy import load_file, save
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import StratifiedGroupKFold
from sklearn.preprocessing import StandardScaler
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
from .collate import Example, read_examples
from .network import Compute, read_shape
from .processes import Processes
from .publish import PROBE_STATES, check_output, portable, write_card, write_config
from .resume import VALIDATIONS
from .train_settings import ProbeSummary, ReadoutRow, TrainSettings

FOLDS = 5
"""Parts of the problems; each is predicted by what is fitted to the others."""
STRENGTHS = tuple(4.0**-power for power in range(-2, 6))
"""Of the regularisation: half of one of these times the squared norm of the coefficients, of standardised columns, is
added to the mean log-loss."""
MOST_LAYERS = 4
"""Layers that a probe reads at most."""
TOLERANCE = 1e-3
"""Largest gradient of the objective where a fit ends."""

Array = npt.NDArray[np.floating]
Labels = npt.NDArray[np.bool_]
Folds = Sequence[tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]]


@dataclass(frozen=True, slots=True)
class Features:
    """What is known of labelled steps. `states`: mean hidden states, (layers, steps, hidden), float16. `layers`: their
    numbers. `measures`: figures of the log-probabilities, (steps, measures)."""

    layers: tuple[int, ...]
    states: npt.NDArray[np.float16]
    measures: Array

    def of(self, layer: int) -> Array:
        """The states of one layer, by its number: (steps, hidden), float32."""
        states: Array = self.states[self.layers.index(layer)].astype(np.float32)
        return states


@dataclass(frozen=True, slots=True)
class LinearProbe:
    """A linear head on some `layers`, in float64: a step's margin is `token_weight`, (layers · hidden,), times its mean
    states, plus `measure_weight`, (measures,), times its measures, plus `bias`."""

    layers: tuple[int, ...]
    token_weight: Array
    measure_weight: Array
    bias: float

    def margins(self, features: Features) -> Array:
        """The log-odds of each step's being right, (steps,)."""
        margins = features.measures @ self.measure_weight + self.bias
        for layer, weight in zip(self.layers, np.split(self.token_weight, len(self.layers)), strict=True):
            margins = margins + features.of(layer) @ weight
        return np.asarray(margins, dtype=np.float64)


@dataclass(frozen=True, slots=True)
class CrossFitted:
    """How well a regression predicts problems that it was not fitted to, at the strength of regularisation that does so
    best: the mean log-loss in nats, and the probability that a right step's margin is above a wrong one's. `margins`:
    those, (steps,)."""

    strength: float
    log_loss: float
    auroc: float
    margins: Array


@dataclass(frozen=True, slots=True)
class FittedProbe:
    """A probe; the figures of its measures alone, of each candidate layer by its number, and of it all."""

    probe: LinearProbe
    measures: CrossFitted
    readouts: dict[int, CrossFitted]
    whole: CrossFitted

    @property
    def rows(self) -> tuple[ReadoutRow, ...]:
        layers = [(f"layer {layer}", layer, figures) for layer, figures in self.readouts.items()]
        named = [("measures of surprisal", None, self.measures), *layers, ("all of it", None, self.whole)]
        return tuple(
            ReadoutRow(name, layer, layer in (None, *self.probe.layers), made.strength, made.log_loss, made.auroc)
            for name, layer, made in named
        )


def fit(
    features: Features,
    labels: Labels,
    problems: Sequence[object],
    seed: int = 0,
    advance: Callable[[], None] = lambda: None,
) -> FittedProbe:
    """Fits a probe to steps. `labels`: whether each is right, (steps,). `problems`: each step's, of which those in one
    fold are held out together. `advance` is called after each layer. Errors as for `split`.
    """
    folds = split(labels, problems, seed)
    readouts: dict[int, CrossFitted] = {}
    for layer in features.layers:
        readouts[layer] = cross_fitted(features.of(layer), labels, folds)
        advance()
    measures = features.measures.astype(np.float64)

    def inputs(layers: Sequence[int]) -> Array:
        return np.column_stack([*(readouts[layer].margins for layer in layers), measures])

    def loss(layers: Sequence[int]) -> float:
        return cross_fitted(inputs(layers), labels, folds, STRENGTHS[-1:]).log_loss

    chosen = tuple(_choose(features.layers, loss))
    last = cross_fitted(inputs(chosen), labels, folds)
    weight, bias = regressed(inputs(chosen), labels, last.strength)
    parts, rest = weight[: len(chosen)], weight[len(chosen) :]
    made = [regressed(features.of(layer), labels, readouts[layer].strength) for layer in chosen]
    rows = [part * each for part, (each, _) in zip(parts, made, strict=True)]
    bias += sum(part * each for part, (_, each) in zip(parts, made, strict=True))
    probe = LinearProbe(chosen, np.concatenate(rows), rest, bias)
    alone = cross_fitted(measures, labels, folds)
    return FittedProbe(probe, alone, readouts, last)


def split(right: Labels, problems: Sequence[object], seed: int) -> Folds:
    """The folds: of each, the indices of the other steps and of its own, whose problems no other step has.

    Raises `ModelInvalid` unless there are right and wrong steps beside each fold.
    """
    numbers = {problem: number for number, problem in enumerate(dict.fromkeys(problems))}
    groups = np.array([numbers[problem] for problem in problems])
    if len(numbers) >= FOLDS and 0 < right.sum() < len(right):
        folds = list(StratifiedGroupKFold(FOLDS, shuffle=True, random_state=seed).split(right, right, groups))
        if all(0 < right[rest].sum() < len(rest) and len(held_out) for rest, held_out in folds):
            return folds
    raise ModelInvalid(
        f"a probe takes right and wrong steps of at least {FOLDS} problems, so that some can be held out: there are "
        f"{int(right.sum()):,} right and {int((~right).sum()):,} wrong ones of {len(numbers):,} problems"
    )


def cross_fitted(columns: Array, right: Labels, folds: Folds, strengths: Sequence[float] = STRENGTHS) -> CrossFitted:
    """Those of a regression on columns, (steps, columns), from the greatest strength on until it gets no better."""
    standard = StandardScaler().fit_transform(columns)
    models = [_regression(warm_start=True) for _ in folds]
    best: CrossFitted | None = None
    for strength in strengths:
        margins = np.empty(len(right))
        for model, (rest, held_out) in zip(models, folds, strict=True):
            model.set_params(C=1 / (strength * len(rest))).fit(standard[rest], right[rest])
            margins[held_out] = model.decision_function(standard[held_out])
        loss = _log_loss(margins, right)
        if best and loss >= best.log_loss:
            break
        best = CrossFitted(strength, loss, float(roc_auc_score(right, margins)), margins)
    assert best
    return best


def regressed(columns: Array, right: Labels, strength: float) -> tuple[Array, float]:
    """The regression on all steps: its weights for columns as they are, (columns,), and its bias."""
    scaler = StandardScaler().fit(columns)
    model = _regression(C=1 / (strength * len(right))).fit(scaler.transform(columns), right)
    weight: Array = model.coef_[0].astype(np.float64) / scaler.scale_
    return weight, float(model.intercept_[0] - weight @ scaler.mean_)


def _regression(**options: Any) -> LogisticRegression:
    return LogisticRegression(tol=TOLERANCE, max_iter=1000, **options)


def _choose(layers: Sequence[int], loss: Callable[[Sequence[int]], float]) -> list[int]:
    """Layers, one after another the one that lowers the loss most, at least one, as long as it falls."""
    chosen: list[int] = []
    least = np.inf
    while len(chosen) < min(MOST_LAYERS, len(layers)):
        losses = {layer: loss([*chosen, layer]) for layer in layers if layer not in chosen}
        best = min(losses, key=losses.__getitem__)
        if losses[best] >= least:
            break
        chosen, least = [*chosen, best], losses[best]
    return sorted(chosen)


def _log_loss(margins: Array, right: Labels) -> float:
    return float(np.logaddexp(0, np.where(right, -margins, margins)).mean())


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
