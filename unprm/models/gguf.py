"""A GGUF file as a directory like those of the hub, which transformers and the engines load."""

import logging
import os
import threading
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

from unprm.errors import ModelInvalid

logger = logging.getLogger(__name__)

LOADING = threading.RLock()
"""transformers changes process-wide settings while it loads: concurrent loads corrupt each other's tensors."""


def convert(file: Path, directory: Path, amend: Callable[[Tokenizer], None] | None = None) -> None:
    """Writes tokenizer, configuration and weights in bfloat16 to an empty directory; it gets all of them or none.

    `amend` mends what transformers makes of the tokenizer. Raises `ModelInvalid` if what reads GGUF is not installed.
    """
    if find_spec("gguf") is None:
        raise ModelInvalid("the model is a GGUF file, and what reads it is not installed: pip install 'unprm[gguf]'")
    logger.info("converting %s to safetensors in %s, once", file.name, directory)
    source, name = file.parent, file.name
    with LOADING, TemporaryDirectory(dir=directory.parent) as partial:
        tokenizer = AutoTokenizer.from_pretrained(source, gguf_file=name)
        if amend:
            amend(tokenizer.backend_tokenizer)
        tokenizer.save_pretrained(partial)
        unpacked = GgufConfig(dequantize=True)
        AutoModelForCausalLM.from_pretrained(
            source, gguf_file=name, dtype=torch.bfloat16, quantization_config=unpacked
        ).save_pretrained(partial)
        try:
            os.replace(partial, directory)
        except OSError:
            if not any(directory.iterdir()):  # another process was faster
                raise
