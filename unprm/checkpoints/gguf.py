"""A GGUF file: its tokenizer, or all of it as a directory like those of the hub, which the engines load."""

import logging
import threading
from importlib.util import find_spec
from pathlib import Path

from tokenizers import normalizers
from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig, PreTrainedTokenizerFast, Qwen2Tokenizer

from unprm.checkpoints.cache import fill
from unprm.errors import ModelInvalid

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


def convert(file: Path, directory: Path) -> None:
    """Writes tokenizer, configuration and weights in bfloat16, unless they are there. Raises as `read_tokenizer`."""

    def write(partial: Path) -> None:
        logger.info("converting %s to safetensors in %s, once", file.name, directory)
        read_tokenizer(file).save_pretrained(partial)
        unpacked = GgufConfig(dequantize=True)
        with LOADING:
            network = AutoModelForCausalLM.from_pretrained(
                file.parent, gguf_file=file.name, dtype="bfloat16", quantization_config=unpacked
            )
        network.save_pretrained(partial)

    fill(directory, write)
