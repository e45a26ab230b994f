"""Loads the engine of a model that a vLLM server runs. Needs no PyTorch."""

import logging
from typing import TYPE_CHECKING

from unprm.engines.consistency import check_consistency
from unprm.engines.remote import RemoteEngine
from unprm.engines.vllm.pooled import classifies_tokens
from unprm.errors import ModelInvalid
from unprm.formats.family import LAYER, Head, Probe, Verdicts
from unprm.models.options import EngineOptions, ModelSpec
from unprm.models.source import ModelSource
from unprm.types import Engine

if TYPE_CHECKING:
    from unprm.engines.vllm.engine import VllmEngine

logger = logging.getLogger(__name__)


def load_remote(spec: ModelSpec, options: EngineOptions) -> Engine:
    """The engine of the model at `options.url`. Raises `ModelInvalid`, also if the server doesn't score."""
    if options.url is None:
        raise ModelInvalid("--engine remote needs --url, the URL of the vLLM server")
    if options.tensor_parallel_size > 1:
        raise ModelInvalid("--tensor-parallel-size is for --engine vllm; the model's engine is remote")
    source = ModelSource.find(spec, weights=False)
    check_for_vllm(source)
    key = options.url_key.get_secret_value() if options.url_key else None
    description = source.describe(spec, options, "remote", options.url, options.dtype)
    return consistent(RemoteEngine(options.url, key, source.format, description))


def is_for_vllm(source: ModelSource) -> bool:
    if source.readout == Head((LAYER,)):
        return source.files.adapter is None and classifies_tokens(source.files.base)
    return isinstance(source.readout, Verdicts | Head)


def check_for_vllm(source: ModelSource) -> None:
    """Raises `ModelInvalid` if vLLM does not score models with this head."""
    if is_for_vllm(source):
        return
    if isinstance(source.readout, Probe):
        raise ModelInvalid(
            "vLLM does not give the hidden states of several layers, which a probe reads: use --engine torch"
        )
    more = ", or merge it with its adapter first" * (source.readout == Head((LAYER,)))
    raise ModelInvalid(f"vLLM does not score models with this head: use --engine torch{more}")


def consistent(engine: "RemoteEngine | VllmEngine") -> Engine:
    """The engine, if the scores of the same steps do not depend on what else is scored; else raises `ModelInvalid`."""
    try:
        found = check_consistency(engine)
    except ValueError as error:
        engine.close()
        raise ModelInvalid(f"{engine.description.name}: the self-test failed ({error})") from error
    about = (
        f"differ by {found.difference:.1e} in other company, at most {found.tolerance:.1e} is right "
        f"({engine.description.dtype} on {engine.description.device})"
    )
    if not found.difference <= found.tolerance:
        engine.close()
        raise ModelInvalid(f"{engine.description.name}: in the self-test scores of the same steps {about}")
    kept = "are" if found.cached else "are not"
    logger.info("self-test: scores of the same steps %s; tokens that were run %s known afterwards", about, kept)
    engine.description = engine.description.model_copy(update={"self_test": found})
    return engine
