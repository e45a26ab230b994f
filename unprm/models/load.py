"""Loads an engine by its model's name."""

import logging
from importlib.util import find_spec
from typing import Any

import torch

from unprm import mini
from unprm.engines.torch import attention
from unprm.engines.torch.devices import Gpu, multiplies_bf16_fast, multiplies_int8_fast, pick_device
from unprm.engines.torch.engine import TorchEngine, planned, slot_bytes
from unprm.engines.torch.graphs import SIZES
from unprm.engines.torch.memory import cache_bytes, left_to_container, pass_tokens, release_freed
from unprm.engines.torch.plain import PlainEngine
from unprm.engines.torch.quantized import quantize, widen_all
from unprm.engines.torch.readers import Reader
from unprm.engines.torch.self_test import TreeTest
from unprm.engines.vllm.model import prepare
from unprm.errors import ModelInvalid
from unprm.formats.family import PrmFormat
from unprm.models.options import MEMORY, Dtype, EngineName, EngineOptions, ModelSpec
from unprm.models.remote import check_for_vllm, consistent, is_for_vllm, load_remote
from unprm.models.source import ModelSource
from unprm.types import Engine, ModelDescription

logger = logging.getLogger(__name__)

CPU_TOKENS = 1024
"""Tokens that a CPU runs at once: more are not faster, and their activations exceed its caches."""
CPU_CACHE = 2**30
"""Bytes of the prefix cache on a CPU."""
LARGE = 10**8
"""Bytes of weights from which on `auto` is bfloat16 on a CPU: smaller models are fast, and their scores differ more."""
_IN_PROCESS: dict[str, Any] = {"engine": "torch", "prefix_cache_gb": 0.0}


def load_engine(model: str = mini.NAME, **options: Any) -> Engine:
    """As `load_model`, with all options as keywords; by default PyTorch in this process, without a prefix cache."""
    spec = ModelSpec(model=model, **{name: options.pop(name) for name in ModelSpec.model_fields if name in options})
    return load_model(spec, EngineOptions(**_IN_PROCESS | options))


def load_model(spec: ModelSpec, options: EngineOptions, sharers: int = 1) -> Engine:
    """Loads a PRM onto its device, with its adapter merged, or beside a base that several `sharers` have in common.
    Raises `ModelInvalid`."""
    if options.engine == "remote":
        return load_remote(spec, options)
    place = torch.device(_device(spec, options, Gpu.find()))
    if place.type == "cuda" and options.dtype in ("int8", "float8"):
        _check_dtype(options.dtype, torch.cuda.get_device_name(place), torch.cuda.get_device_capability(place))
    source = ModelSource.find(spec)
    files = source.files
    fast = place.type == "cpu" and multiplies_bf16_fast(place)  # a GPU that is asked initialises CUDA: see `Gpu.find`
    number = _pick_dtype(options.dtype, place.type, files.weight_bytes(), fast)
    chosen = _pick_engine(options, place, source, shared=sharers > 1)
    dtype = options.dtype if options.dtype in ("int8", "float8") else str(number).removeprefix("torch.")
    if place.type == "cpu":
        eight = options.dtype == "int8"  # the stored type is loaded first
        check_room(
            files.name, files.weight_bytes() if eight else files.parameters() * number.itemsize, left_to_container()
        )
    description = source.describe(spec, options, chosen, str(place), dtype)
    if chosen == "vllm":
        from unprm.engines.vllm.engine import VllmEngine  # an optional dependency

        prepared = prepare(files, source.readout, source.tokenizer, number)
        caching = options.prefix_cache_gb != 0
        share = options.memory or MEMORY, options.tensor_parallel_size
        return consistent(
            VllmEngine(prepared, source.format, description, number, options.batch_tokens, *share, caching)
        )
    return _in_process(source, options, description, number, place, sharers)


def _in_process(
    source: ModelSource,
    options: EngineOptions,
    description: ModelDescription,
    number: torch.dtype,
    place: torch.device,
    sharers: int,
) -> Engine:
    int8 = options.dtype == "int8"
    # for int8, load the stored type, which takes no more memory than the file, unless an adapter is merged
    reader = source.reader("auto" if int8 and not source.files.adapter else number, place, sharers)
    if int8:
        for decoder in reader.decoders:
            quantize(decoder, widened=not multiplies_int8_fast())
    if place.type == "cpu" and not (number is torch.bfloat16 and multiplies_bf16_fast(place)):
        for module in reader.modules:
            widen_all(module)
    tokens = min(options.batch_tokens, CPU_TOKENS)
    if place.type == "cuda":
        total = torch.cuda.get_device_properties(place).total_memory
        tokens = pass_tokens(options.batch_tokens, planned(reader, 0, options.batch_tokens), total)
    cache = _cache_bytes(reader, options, description.max_tokens, tokens, place)
    engine = torch_engine(reader, source.format, description, tokens, cache)
    release_freed()
    return engine


def check_room(model: str, needed: int, left: int) -> None:
    """Raises `ModelInvalid` if the weights take more bytes than a container's limit leaves: it would be killed."""
    if needed > left:
        raise ModelInvalid(
            f"the weights of {model} take {needed / 1e9:.2f} GB, and the container's memory limit leaves "
            f"{left / 1e9:.2f} GB: raise the limit, or choose a smaller model or --dtype"
        )


def _cache_bytes(reader: Reader, options: EngineOptions, max_tokens: int, pass_tokens: int, place: torch.device) -> int:
    """Bytes for the prefix cache; the weights are on their device."""
    if options.prefix_cache_gb is not None:
        return int(options.prefix_cache_gb * 2**30)
    if place.type != "cuda":
        return min(CPU_CACHE, left_to_container() // 2)
    torch.cuda.empty_cache()  # what loading took counts as free
    free, total = torch.cuda.mem_get_info(place)
    model, slot = planned(reader, max_tokens, pass_tokens), slot_bytes(reader)
    size = cache_bytes(model, slot, options.memory or MEMORY, free, total)
    left = free - model.slots - model.activations - size
    logger.info(
        "the prefix cache takes %.1f GB, %d tokens; %.1f of the GPU's %.1f GB are left free",
        size / 1e9, size // slot, left / 1e9, total / 1e9,
    )  # fmt: skip
    return size


def torch_engine(
    reader: Reader, format: PrmFormat, description: ModelDescription, pass_tokens: int, cache_bytes: int
) -> Engine:
    """An engine that runs each token once; or, if its tree can't compute the model's attention and `cache_bytes` is 0,
    every sequence alone. Arguments as of `TorchEngine`. Raises `ModelInvalid`."""
    implementations = [decoder.config._attn_implementation for decoder in reader.decoders]
    reasons = [attention.unsupported(decoder.config) for decoder in reader.decoders]
    reason = next(filter(None, reasons), None)
    if reason is None:
        test = TreeTest(reader, format, description.max_tokens, exact=description.dtype != "bfloat16")
        engine = TorchEngine(reader, format, description, pass_tokens, cache_bytes)
        if memory := engine.description.memory:
            logger.info(
                "%s takes %.2f GB for weights, up to %.2f for keys and values and %.2f for activations",
                description.name, memory.weights / 1e9, memory.slots / 1e9, memory.activations / 1e9,
            )  # fmt: skip
        card = f", {torch.cuda.get_device_name()}" if description.device == "cuda" else ""
        where = f"{description.dtype} on {description.device}{card}, PyTorch {torch.__version__}"
        try:
            # wrongly computed attention fails every time; a one-off fault of the machine, or of its graphs, must not
            # stop the server
            for sizes in (SIZES, ()):
                found = test.compare(engine, sizes)
                about = f"by {found.difference:.1e}, at most {found.tolerance:.1e} is right ({where})"
                if found.difference <= found.tolerance:
                    logger.info(
                        "self-test: margins of %s differ from those of plain passes %s", description.name, about
                    )
                    engine.description = engine.description.model_copy(update={"self_test": found})
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
    for decoder, implementation in zip(reader.decoders, implementations, strict=True):
        decoder.set_attn_implementation(implementation)
    return PlainEngine(reader, format, description)


def _pick_engine(options: EngineOptions, place: torch.device, source: ModelSource, *, shared: bool) -> EngineName:
    engine, dtype = options.engine, options.dtype
    if options.url is not None:
        raise ModelInvalid("--url, the URL of a vLLM server, needs --engine remote")
    if shared and (engine not in ("auto", "torch") or dtype == "int8"):
        raise ModelInvalid(
            "adapters share a base with --engine torch alone, and not in int8: merge each (`unprm merge-adapter`), or "
            "serve one, by an --adapter without a name"
        )
    if engine == "vllm":
        check_for_vllm(source)
    elif shared or not is_for_vllm(source):
        engine = "torch"
    installed = find_spec("vllm") is not None
    if engine == "vllm" and dtype == "int8":
        raise ModelInvalid("int8 isn't supported with vLLM: use --engine torch, or --dtype float8")
    if engine == "vllm" and not installed:
        raise ModelInvalid("vLLM is not installed: pip install '.[vllm]' in unprm's directory, or use --engine torch")
    if engine == "auto":
        engine = "vllm" if installed and place.type == "cuda" and dtype != "int8" else "torch"
    if engine == "torch" and dtype == "float8":
        raise ModelInvalid("float8 is computed by vLLM alone: use --engine vllm, or --dtype bfloat16")
    if options.tensor_parallel_size > 1 and engine != "vllm":
        raise ModelInvalid(f"--tensor-parallel-size is for --engine vllm; the model's engine is {engine}")
    return engine


def _device(spec: ModelSpec, options: EngineOptions, gpu: Gpu) -> str:
    """As `pick_device`. The embedded models are small enough for every CPU."""
    return pick_device(options.device, gpu, falls_back=spec.model in mini.ADAPTERS)


def _check_dtype(dtype: Dtype, gpu: str, capability: tuple[int, int]) -> None:
    if dtype == "int8":
        raise ModelInvalid("int8 is computed on CPUs alone: on a GPU use --dtype bfloat16")
    if dtype == "float8" and capability < (8, 9):
        raise ModelInvalid(f"{gpu} does not compute in float8: use --dtype bfloat16")


def _pick_dtype(dtype: Dtype, device: str, stored: int, fast: bool) -> torch.dtype:
    """The type of what is not in eight bits. `stored`: bytes of the weights; `fast`: a CPU multiplies bfloat16 fast."""
    halved = dtype == "bfloat16"
    if dtype in ("auto", "float8"):
        halved = device == "cuda" or (fast and stored >= LARGE)
    return torch.bfloat16 if halved else torch.float32
