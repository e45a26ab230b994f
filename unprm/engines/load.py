"""From a model's name to a loaded engine."""

import logging
from collections.abc import Mapping
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

import torch
from tokenizers import Tokenizer
from transformers import AutoConfig, AutoModel

from unprm import mini
from unprm.calibration import Calibration, RecordedCalibration
from unprm.engines import tree_attention
from unprm.engines.checkpoint import (
    PrmFiles,
    StoredDtype,
    fetch,
    load_base,
    load_merged,
    load_network,
    load_tokenizer,
    locate,
    read_config,
)
from unprm.engines.digest import model_digest
from unprm.engines.heads import VerdictHead, read_head
from unprm.engines.memory import release_freed
from unprm.engines.plain import PlainEngine
from unprm.engines.quantized import Eight, quantize, widen
from unprm.engines.readers import AtPositions, LikelihoodRatios, Reader
from unprm.engines.self_test import TreeTest, check_consistency
from unprm.engines.torch_engine import TorchEngine
from unprm.engines.vllm_model import prepare
from unprm.errors import ModelInvalid
from unprm.formats import unprm
from unprm.formats.family import Family, Head, LikelihoodRatio, PrmFormat, Readout, Verdicts
from unprm.formats.registry import family_named, of_architecture, recognise
from unprm.model_names import public_name
from unprm.types import Engine, ModelDescription

if TYPE_CHECKING:
    from unprm.engines.remote import RemoteEngine
    from unprm.engines.vllm_engine import VllmEngine

logger = logging.getLogger(__name__)

Device = Literal["auto", "cpu", "cuda"]
Dtype = Literal["auto", "float32", "bfloat16", "int8", "float8"]
EngineName = Literal["auto", "torch", "vllm", "remote"]
BATCH_TOKENS = 16_384
"""Tokens that a GPU runs at once."""
SOLUTION_TOKENS = 8192
"""Tokens of a problem and a solution at the most; room is kept for so many, and windows may be 131,072."""
CPU_TOKENS = 1024
"""Tokens that a CPU runs at once: more don't make it faster, and their activations leave its caches."""


def load_engine(
    model: str = mini.NAME,
    *,
    adapter: str | None = None,
    revision: str | None = None,
    adapter_revision: str | None = None,
    family: str | None = None,
    step_tag: str | None = None,
    positive: str | None = None,
    negative: str | None = None,
    reference: str | None = None,
    beta: float | None = None,
    engine: EngineName = "torch",
    url: str | None = None,
    key: str | None = None,
    device: Device = "auto",
    dtype: Dtype = "auto",
    batch_tokens: int = BATCH_TOKENS,
    memory: float = 0.9,
    prefix_cache_gb: float = 0.0,
    max_solution_tokens: int = SOLUTION_TOKENS,
    recorded: RecordedCalibration | None = None,
) -> Engine:
    """Loads a PRM and puts it on the device, an adapter merged.

    `model` is `unprm-mini` or `unprm-mini-rollouts` (embedded); the directory or hub name of a PRM made by
    `training train`, whose base is named in its `prm_config.json`; with `adapter`, the base; or a PRM of another
    family, known by its name or its `config.json`, or given by `family`. `step_tag`, `positive`, `negative`, a token
    each: what each step ends with and the verdicts on it, of a PRM of family unprm without `prm_config.json`.
    `reference` and `beta` replace those of a family that is scored by likelihood ratios. `auto` takes CUDA if there is
    one, and bfloat16 on CUDA, float32 on a CPU. `int8` and `float8` compute the linear layers in eight bits and the
    rest as `auto` does. Only safetensors are read and no code comes with a model.

    `engine`: `torch`; `vllm`, which takes the share `memory` of a GPU's memory; `remote`, a server of vLLM at `url`
    that serves this model, with its API key; `auto` is `vllm` on CUDA where it is installed, else `torch`.

    `prefix_cache_gb`: GiB of keys and values that torch keeps from call to call, so that what a sequence begins with is
    not run again; vLLM keeps them within `memory` unless this is 0. `max_solution_tokens`: of a problem and a solution
    together, if the model's window is not smaller. `recorded` replaces the model's own calibration.

    Raises `ModelInvalid` with what is missing or does not fit.
    """
    place = torch.device(_pick_device(device))
    number = _pick_dtype(dtype, place)
    marks = {"step_tag": step_tag, "positive": positive, "negative": negative}
    given = {name: text for name, text in marks.items() if text is not None}
    kind = _family(model, adapter, revision, unprm.FAMILY.name if given and family is None else family)
    if given:
        _check_unconfigured(fetch(adapter or model, adapter_revision if adapter else revision), given, kind)
    if kind is unprm.FAMILY:
        files = locate(model, adapter, revision, adapter_revision, configured=not given)
    else:
        files = PrmFiles(fetch(model, revision), model, revision, None, None, model)
    tokenizer = load_tokenizer(files.base)
    if given:  # what is not is the paper's
        config = unprm.PrmConfig.for_base(tokenizer, files.name, files.base_name, **given)
        format: PrmFormat = unprm.UnprmFormat(tokenizer, config)
    else:
        format = kind.build(tokenizer, files.directory)
    readout = _adjusted(format.readout, reference, beta)
    chosen = _pick_engine(engine, place, url, readout, dtype)
    shown = dtype if dtype in get_args(Eight) else str(number).removeprefix("torch.")
    description = ModelDescription(
        name=public_name(files.name),
        family=kind.name,
        base=public_name(files.base_name),
        adapter=files.adapter_name and public_name(files.adapter_name),
        revision=adapter_revision if adapter else revision,
        engine=chosen,
        device=url if chosen == "remote" and url else str(place),
        dtype=shown,
        max_tokens=min(_window(files.base, tokenizer), max_solution_tokens),
        input_format=format.input_format,
        calibration=recorded.calibration if recorded else Calibration.read(files.directory),
        demo=model in mini.ADAPTERS,
        digest=None if chosen == "remote" else _digest(files, format, readout, tokenizer, shown),
        recorded=recorded,
    )
    if chosen == "remote":
        from unprm.engines.remote import RemoteEngine

        return _consistent(RemoteEngine(str(url), key, format, description))
    if chosen == "vllm":
        from unprm.engines.vllm_engine import VllmEngine  # installed only where it is used

        prepared = prepare(files, readout, tokenizer, number)
        caching = prefix_cache_gb > 0
        return _consistent(VllmEngine(prepared, format, description, number, batch_tokens, memory, caching))
    tokens = batch_tokens if place.type == "cuda" else min(batch_tokens, CPU_TOKENS)
    eight: Eight | None = dtype if dtype == "int8" or dtype == "float8" else None
    # in the type that it is stored in, which takes no more memory than its file, unless something is merged into it
    reader = _reader(files, readout, "auto" if eight and not files.adapter else number, place)
    if eight:
        for decoder in reader.decoders:
            quantize(decoder, eight, number)
    for module in reader.modules:
        widen(module)
    loaded = torch_engine(reader, format, description, tokens, int(prefix_cache_gb * 2**30))
    release_freed()
    return loaded


def _consistent(engine: "RemoteEngine | VllmEngine") -> Engine:
    """The engine, if it gives the same steps the same scores in whatever company; raises `ModelInvalid` if not."""
    try:
        found = check_consistency(engine)
    except ValueError as error:
        engine.close()
        raise ModelInvalid(f"{engine.description.name}: the self-test failed ({error})") from error
    about = f"differ by {found.difference:.1e} in other company, at most {found.tolerance:.1e} is right"
    if not found.difference <= found.tolerance:
        engine.close()
        raise ModelInvalid(f"{engine.description.name}: in the self-test scores of the same steps {about}")
    kept = "are" if found.cached else "are not"
    logger.info("self-test: scores of the same steps %s; tokens that were run %s known afterwards", about, kept)
    engine.description = replace(engine.description, self_test=found)
    return engine


def torch_engine(
    reader: Reader, format: PrmFormat, description: ModelDescription, pass_tokens: int, cache_bytes: int
) -> Engine:
    """A model on its device as an engine that runs each token once; if its tree can't compute the model's attention,
    and `cache_bytes` is 0, as one that runs every sequence alone. Arguments as those of `TorchEngine`.

    Raises `ModelInvalid` if that is so and a cache was to be kept.
    """
    attentions = [decoder.config._attn_implementation for decoder in reader.decoders]
    reasons = [tree_attention.unsupported(decoder.config) for decoder in reader.decoders]
    reason = next(filter(None, reasons), None)
    if reason is None:
        test = TreeTest(reader, format, description.max_tokens, exact=description.dtype == "float32")
        engine = TorchEngine(reader, format, description, pass_tokens, cache_bytes)
        if memory := engine.description.memory:
            logger.info(
                "%s takes %.2f GB for weights, up to %.2f for keys and values and %.2f for activations",
                description.name, memory.weights / 1e9, memory.slots / 1e9, memory.activations / 1e9,
            )  # fmt: skip
        try:
            # attention that is computed wrongly fails each time; a machine's hiccup must stop no server
            for _ in range(2):
                found = test.run(engine)
                about = f"by {found.difference:.1e}, at most {found.tolerance:.1e} is right"
                if found.difference <= found.tolerance:
                    logger.info(
                        "self-test: margins of %s differ from those of plain passes %s", description.name, about
                    )
                    engine.description = replace(engine.description, self_test=found)
                    return engine
                reason = f"in the self-test margins differ from those of plain passes {about}"
                logger.warning("%s: %s", description.name, reason)
        except NotImplementedError as error:
            reason = str(error)
        engine.close()
    if cache_bytes:
        raise ModelInvalid(
            f"{description.name} can't be scored with shared prefixes by the torch engine: {reason}. Use --engine "
            "vllm, or --prefix-cache-gb 0, which runs each sequence alone"
        )
    logger.warning("%s is run one sequence after the other: %s", description.name, reason)
    for decoder, attention in zip(reader.decoders, attentions, strict=True):
        decoder.set_attn_implementation(attention)
    return PlainEngine(reader, format, description)


def _check_unconfigured(directory: Path, marks: Mapping[str, str], family: Family) -> None:
    """Raises `ModelInvalid` if a PRM's step tag and verdicts are not to be given, as it has its own."""
    names = ", ".join(f"--{name.replace('_', '-')}" for name in marks)
    if family is not unprm.FAMILY:
        raise ModelInvalid(f"{names} are for models of family {unprm.FAMILY.name}, not {family.name}")
    if (directory / unprm.CONFIG_NAME).exists():
        raise ModelInvalid(f"{directory} says in {unprm.CONFIG_NAME} how it is read: leave out {names}")


def _digest(files: PrmFiles, format: PrmFormat, readout: Readout, tokenizer: Tokenizer, dtype: str) -> str:
    places = [files.base, *([files.adapter] if files.adapter else [])]
    if isinstance(readout, LikelihoodRatio):
        places.append(fetch(readout.reference, None))
        readout = LikelihoodRatio(readout.beta, "")  # its weights count, not its name
    return model_digest(places, format, readout, tokenizer.to_str(), dtype)


def _pick_engine(
    engine: EngineName, place: torch.device, url: str | None, readout: Readout, dtype: Dtype
) -> EngineName:
    if (engine == "remote") != (url is not None):
        raise ModelInvalid("--engine remote and --url go together: the one names vLLM's server for the other")
    if isinstance(readout, LikelihoodRatio):
        if engine in ("vllm", "remote"):
            raise ModelInvalid("vLLM does not score by likelihood ratios: use --engine torch")
        return "torch"
    installed = find_spec("vllm") is not None
    if engine == "vllm" and not installed:
        raise ModelInvalid("vLLM is not installed: pip install 'unprm[vllm]', or use --engine torch")
    if engine == "vllm" and dtype == "int8":
        raise ModelInvalid("vLLM is not asked to compute in int8: use --engine torch, or --dtype float8")
    if engine == "auto":
        return "vllm" if installed and place.type == "cuda" and dtype != "int8" else "torch"
    return engine


def _family(model: str, adapter: str | None, revision: str | None, name: str | None) -> Family:
    """The family of this name, or the one that the model's files show."""
    if name is None and (adapter or model in mini.ADAPTERS):
        return unprm.FAMILY
    if name == unprm.FAMILY.name:
        return unprm.FAMILY
    if adapter:
        raise ModelInvalid(f"family {name} has no adapters: leave out --adapter, or --family")
    directory = fetch(model, revision)
    if name is None and (directory / unprm.CONFIG_NAME).exists():
        return unprm.FAMILY
    architectures = read_config(directory).get("architectures") or []
    named = None if name is None else family_named(name)
    shown = of_architecture(architectures)
    if named and shown and shown is not named:
        raise ModelInvalid(f"{model} is a model of family {shown.name}, not {named.name}: leave out --family")
    return named or recognise(model, architectures)


def _adjusted(readout: Readout, reference: str | None, beta: float | None) -> Readout:
    """The readout with another reference model or β, if they are given and it has any."""
    if reference is None and beta is None:
        return readout
    if not isinstance(readout, LikelihoodRatio):
        raise ModelInvalid("--reference and --beta are for families that are scored by likelihood ratios")
    return LikelihoodRatio(readout.beta if beta is None else beta, reference or readout.reference)


def _reader(files: PrmFiles, readout: Readout, dtype: StoredDtype, place: torch.device) -> Reader:
    """The loaded model as the torch engine takes it."""
    if isinstance(readout, Head):
        network = load_network(AutoModel, files.base, dtype)
        head = read_head(files.base, readout, network.config.hidden_size)
        return AtPositions(network, head, place)
    if isinstance(readout, Verdicts):
        network = load_merged(files, dtype)
        return AtPositions(network.get_decoder(), VerdictHead(network.get_output_embeddings().weight, readout), place)
    network, other = load_base(files.base, dtype), load_base(fetch(readout.reference, None), dtype)
    if len(network.get_input_embeddings().weight) != len(other.get_input_embeddings().weight):
        raise ModelInvalid(f"{files.base_name} and its reference model {readout.reference} have other vocabularies")
    return LikelihoodRatios(network, other, readout.beta, place)


def _window(base: Path, tokenizer: Tokenizer) -> int:
    """The model's window in tokens; raises `ModelInvalid` if the tokenizer is another model's."""
    config = AutoConfig.from_pretrained(base, trust_remote_code=False, local_files_only=True)
    tokens = tokenizer.get_vocab_size()
    if tokens > config.vocab_size:
        raise ModelInvalid(
            f"{base}: the tokenizer has {tokens} tokens, the model {config.vocab_size}: they don't belong together"
        )
    return int(config.max_position_embeddings)


def _pick_device(device: Device) -> str:
    if device == "cuda" and not torch.cuda.is_available():
        raise ModelInvalid("device cuda was asked for, and PyTorch sees no CUDA device")
    if device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    return device


def _pick_dtype(dtype: Dtype, device: torch.device) -> torch.dtype:
    """What is computed in where not in eight bits; raises `ModelInvalid` if the device can't compute in `dtype`."""
    if dtype == "float32" or dtype == "bfloat16":
        return torch.float32 if dtype == "float32" else torch.bfloat16
    if device.type != "cuda":
        return torch.float32
    if dtype == "int8":
        raise ModelInvalid("int8 is computed on CPUs alone: on a GPU use --dtype float8 or bfloat16")
    if dtype == "float8" and torch.cuda.get_device_capability(device) < (8, 9):
        raise ModelInvalid(f"{torch.cuda.get_device_name(device)} does not compute in float8: use --dtype bfloat16")
    return torch.bfloat16
