"""A GGUF file: its tokenizer, or all of it as a directory like those of the hub, which the engines load."""

import logging
import os
import shutil
import threading
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import torch
from tokenizers import Tokenizer, normalizers
from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig, PreTrainedTokenizerFast, Qwen2Tokenizer

from unprm.errors import ModelInvalid
from unprm.models.locks import alone

logger = logging.getLogger(__name__)

LOADING = threading.RLock()
"""transformers changes process-wide settings while it loads: concurrent loads corrupt each other's tensors."""


SUFFIX = ".gguf"


def read_tokenizer(file: Path) -> PreTrainedTokenizerFast:
    """The tokenizer in a file. Qwen's composes characters first, which a GGUF file does not say. Raises `ModelInvalid`
    if what reads GGUF is not installed."""
    if find_spec("gguf") is None:
        raise ModelInvalid("the model is a GGUF file, and what reads it is not installed: pip install 'unprm[gguf]'")
    with LOADING:
        tokenizer: PreTrainedTokenizerFast = AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)
    if isinstance(tokenizer, Qwen2Tokenizer):
        tokenizer.backend_tokenizer.normalizer = normalizers.NFC()
    return tokenizer


def convert(file: Path, directory: Path, amend: Callable[[Tokenizer], None] | None = None) -> None:
    """Writes tokenizer, configuration and weights in bfloat16, unless they are there; all of them or none.

    `amend` mends what transformers makes of the tokenizer. Raises as `read_tokenizer`.
    """
    partial = directory.with_name(directory.name + ".partial")
    with alone(directory), LOADING:
        if directory.is_dir() and any(directory.iterdir()):
            return
        logger.info("converting %s to safetensors in %s, once", file.name, directory)
        shutil.rmtree(partial, ignore_errors=True)
        tokenizer = read_tokenizer(file)
        if amend:
            amend(tokenizer.backend_tokenizer)
        tokenizer.save_pretrained(partial)
        unpacked = GgufConfig(dequantize=True)
        AutoModelForCausalLM.from_pretrained(
            file.parent, gguf_file=file.name, dtype=torch.bfloat16, quantization_config=unpacked
        ).save_pretrained(partial)
        os.replace(partial, directory)
