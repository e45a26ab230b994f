"""What a model is made of: files, tokenizer, and its family's format. Only `reader` needs weights and PyTorch."""

import hashlib
import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tokenizers import Tokenizer
from transformers import AutoConfig, AutoModel

from unprm import mini
from unprm.calibration import Calibration
from unprm.checkpoints import lora
from unprm.checkpoints.files import (
    PrmFiles,
    StoredDtype,
    digests,
    fetch,
    load_base,
    load_network,
    load_tokenizer,
    locate,
    read_config,
)
from unprm.commands import option
from unprm.errors import ModelInvalid
from unprm.formats import probe, unprm
from unprm.formats.family import (
    Ensemble,
    Family,
    Head,
    LikelihoodRatio,
    Outcome,
    PrmFormat,
    Probe,
    Readout,
    Verdicts,
)
from unprm.formats.registry import family_named, is_probe, of_architecture, recognise
from unprm.formats.tagged import SEPARATORS, TrlFormat
from unprm.models.options import EngineName, EngineOptions, ModelSpec, public_name
from unprm.types import ModelDescription

if TYPE_CHECKING:
    import torch

    from unprm.engines.torch.readers import Reader

_OURS = unprm.FAMILY, probe.FAMILY
"""The families whose models have a `prm_config.json`."""
_EXAMPLE = ("1 + 1 = ?", ("1 + 1 is 2.", "So it is \\boxed{2}."))


@dataclass(frozen=True, slots=True)
class ModelSource:
    """A model that was found: its family, its files, and how its input is built and its scores are read."""

    family: Family
    files: PrmFiles
    tokenizer: Tokenizer
    format: PrmFormat
    readout: Readout

    @classmethod
    def find(cls, spec: ModelSpec, *, weights: bool = True) -> "ModelSource":
        """Finds a model's files, with `weights` or without. Raises `ModelInvalid` if `spec` does not fit them."""
        marks = spec.marks
        family = _family(spec)
        ours = family in _OURS
        where = spec.model, spec.adapter, spec.revision, spec.adapter_revision
        files = locate(*where, configured=ours and not marks, weights=weights)
        if files.adapter and family.readout not in (Verdicts, None):
            raise ModelInvalid(f"family {family.name} has no adapters: leave out --adapter, or --family")
        if family is probe.FAMILY and (files.base / lora.CONFIG).is_file():
            raise ModelInvalid(f"a probe reads a base as it is: {files.base_name} is an adapter, merge it first")
        tokenizer = load_tokenizer(files.base)
        if marks:  # those not given are the paper's
            config = unprm.PrmConfig.for_base(tokenizer, files.name, files.base_name, **marks)
            format: PrmFormat = unprm.UnprmFormat(tokenizer, config)
        elif family.name == TrlFormat.family:
            format = TrlFormat.build(tokenizer, files.base, spec.separator or SEPARATORS.get(spec.model))
        else:
            format = family.build(tokenizer, files.directory if ours else files.base)
        if spec.separator and not isinstance(format, TrlFormat):
            raise ModelInvalid(f"--separator is for models of family {TrlFormat.family}, not {family.name}")
        readout = format.readout
        if marks and isinstance(readout, Verdicts):  # another program trained it, by the model's own logits
            readout = replace(readout, rows_alone=False)
        return cls(family, files, tokenizer, format, _adjusted(readout, spec.reference, spec.beta))

    def window(self) -> int:
        """The model's window in tokens; raises `ModelInvalid` if the tokenizer is another model's."""
        config = AutoConfig.from_pretrained(self.files.base, trust_remote_code=False, local_files_only=True)
        tokens = self.tokenizer.get_vocab_size()
        if tokens > config.vocab_size:
            raise ModelInvalid(
                f"{self.files.base}: the tokenizer has {tokens} tokens, the model {config.vocab_size}: they don't "
                "belong together"
            )
        return int(config.max_position_embeddings)

    def describe(
        self, spec: ModelSpec, options: EngineOptions, engine: EngineName, device: str, dtype: str
    ) -> ModelDescription:
        """The model as `engine` is to run it. Raises `ModelInvalid` as `window`, or for an unreadable calibration."""
        files = self.files
        return ModelDescription(
            name=public_name(files.name),
            family=self.family.name,
            base=public_name(files.base_name),
            adapter=files.adapter_name and public_name(files.adapter_name),
            revision=spec.adapter_revision if spec.adapter else spec.revision,
            engine=engine,
            device=device,
            dtype=dtype,
            max_tokens=min(self.window(), options.max_solution_tokens),
            input_format=self.format.input_format,
            calibration=Calibration.read(files.directory),
            demo=spec.model in mini.ADAPTERS,
            digest=None if engine == "remote" else self.digest(dtype),
        )

    def digest(self, dtype: str) -> str:
        """Identifies all that scores depend on: weights and settings, format and tokenizer, readout, and number type.

        16 hexadecimal digits, the same wherever the files are and whatever engine, device or name the model has.
        """
        places = [self.files.base, *([self.files.adapter] if self.files.adapter else [])]
        readout = self.readout
        if isinstance(readout, LikelihoodRatio):
            places.append(fetch(readout.reference, None))
            readout = LikelihoodRatio(readout.beta, "")  # its weights count, not its name
        encoded = self.format.encode(*_EXAMPLE)  # the encoding changes with the format's code
        layout = [self.format.family, self.format.input_format, repr(readout), encoded.ids, encoded.positions]
        return _of_text(json.dumps([[*map(digests, places)], layout, _of_text(self.tokenizer.to_str()), dtype]))[:16]

    def reader(self, dtype: StoredDtype, place: "torch.device", sharers: int = 1) -> "Reader":
        """The loaded model for the torch engine, in `dtype` on `place`. `sharers`: models with this base. Raises
        `ModelInvalid`."""
        from unprm.checkpoints.shared import load_adapted, load_shared
        from unprm.engines.torch.heads import VerdictHead, check_unscaled, margin_of, read_head
        from unprm.engines.torch.probe import ProbeHead, ProbeReader
        from unprm.engines.torch.readers import AtPositions, LikelihoodRatios

        files, readout = self.files, self.readout
        if isinstance(readout, Head | Ensemble | Outcome):
            if files.adapter:
                network = load_adapted(files, dtype, place, sharers).get_decoder()
            else:
                network = load_network(AutoModel, files.base, dtype)
            head = read_head(files.directory, readout, network.config.hidden_size)
            return AtPositions(network, head, place)
        if isinstance(readout, Probe):
            network = load_base(files.base, dtype)
            head = ProbeHead.read(files.directory, readout, network.config.get_text_config().hidden_size)
            factor, _ = margin_of(network, self._tokens)
            return ProbeReader(network, head, readout, place, factor)
        if isinstance(readout, Verdicts):
            network = load_adapted(files, dtype, place, sharers)
            return AtPositions(network.get_decoder(), VerdictHead.from_network(network, readout), place)
        network = load_adapted(files, dtype, place, sharers)
        other = load_shared(fetch(readout.reference, None), dtype, place, sharers)
        if len(network.get_input_embeddings().weight) != len(other.get_input_embeddings().weight):
            raise ModelInvalid(f"{files.base_name} and its reference model {readout.reference} have other vocabularies")
        for model in (network, other):
            check_unscaled(model, self._tokens)
        return LikelihoodRatios(network, other, readout.beta, place)

    @property
    def _tokens(self) -> Verdicts:
        ids = self.format.encode(*_EXAMPLE).ids
        return Verdicts(min(ids), max(ids))


def _family(spec: ModelSpec) -> Family:
    """The family that is named, or that the model's files show. Raises `ModelInvalid` if these contradict one
    another."""
    named = None if spec.family is None else family_named(spec.family)
    model = fetch(spec.model, spec.revision, weights=False)
    own = mini.ADAPTERS.get(spec.model, model)
    if spec.adapter:
        own = fetch(spec.adapter, spec.adapter_revision, "--adapter", weights=False)
        if is_probe(model):
            raise ModelInvalid(f"{spec.model} is a probe, which reads its base as it is: leave out --adapter")
    configured = (own / unprm.CONFIG_NAME).exists()
    if marks := ", ".join(map(option, spec.marks)):
        if named not in (None, unprm.FAMILY):
            raise ModelInvalid(f"{marks} are for models of family {unprm.FAMILY.name}, not {named.name}")
        if configured:
            raise ModelInvalid(f"{own} says in {unprm.CONFIG_NAME} how it is read: leave out {marks}")
    if named is None and (spec.adapter or configured or marks):
        return probe.FAMILY if is_probe(own) else unprm.FAMILY
    if named and (named in _OURS or spec.adapter):
        return named
    architectures = [] if (model / lora.CONFIG).is_file() else read_config(model).get("architectures") or []
    shown = of_architecture(architectures)
    if named and shown and shown is not named:
        raise ModelInvalid(f"{spec.model} is a model of family {shown.name}, not {named.name}: leave out --family")
    return named or recognise(spec.model, architectures)


def _adjusted(readout: Readout, reference: str | None, beta: float | None) -> Readout:
    """The readout with `reference` and `beta`, if given; raises `ModelInvalid` if it then is no likelihood ratio."""
    if reference is None and beta is None:
        return readout
    if not isinstance(readout, LikelihoodRatio):
        raise ModelInvalid("--reference and --beta are for families that are scored by likelihood ratios")
    return LikelihoodRatio(readout.beta if beta is None else beta, reference or readout.reference)


def _of_text(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
