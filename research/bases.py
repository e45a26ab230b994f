"""Bases of the studies, each one GGUF file of the hub that its SHA-256 identifies, as directories that every command
takes for a model: `python -m research base NAME` prints one.

On a machine without the hub the file may be put into the cache by hand. An adapter for a base of these doesn't fit the
hub's model in full precision.
"""

import hashlib
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from huggingface_hub import cached_assets_path, hf_hub_download
from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError
from tokenizers import normalizers
from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig, PreTrainedTokenizerFast, Qwen2Tokenizer

from unprm.engines.vllm.model import fill
from unprm.errors import ModelInvalid

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Base:
    """A model's file: its place on the hub, its `size` in bytes, and its digest."""

    repository: str
    revision: str
    file: str
    size: int
    sha256: str

    def by_hand(self, cache: Path | None = None) -> Path:
        """Where the file is looked for before it is asked of the hub: in `cache`, a directory (default: among
        huggingface_hub's assets)."""
        return (cache or cached_assets_path("unprm", "bases")) / f"{self.sha256}.gguf"

    def find(self, cache: Path | None = None, **options: Any) -> Path:
        """The file: that of `by_hand`, or else the hub's, in its own cache. `options`: more of `hf_hub_download`.

        Raises `ModelInvalid` if it can't be had, or is another file; it says what to do.
        """
        file = self.by_hand(cache)
        if not file.exists():
            try:
                file = Path(hf_hub_download(self.repository, self.file, revision=self.revision, **options))
            except (HfHubHTTPError, LocalEntryNotFoundError, OSError) as error:
                reason = str(error).partition("\n")[0]
                raise ModelInvalid(
                    f"{self.file} can't be fetched from the hub ({reason}). Download it from "
                    f"{self.repository}, revision {self.revision}, elsewhere and put it at {file}"
                ) from error
        with file.open("rb") as content:
            digest = hashlib.file_digest(content, "sha256").hexdigest()
        if digest != self.sha256:
            raise ModelInvalid(
                f"{file} is not {self.file}: its SHA-256 is {digest} instead of {self.sha256}. Delete it, and it is "
                "fetched again"
            )
        return file

    def directory(self, cache: Path | None = None) -> Path:
        """Tokenizer, configuration and weights in bfloat16, in the cache of `by_hand`; they are converted if they were
        not before. Raises `ModelInvalid` as `find`."""
        place = self.by_hand(cache).with_suffix("")
        if not place.exists():
            file = self.find(cache)
            logger.info("converting %s to safetensors in %s, once", file.name, place)
            fill(place, lambda partial: _convert(file, partial))
        return place


BASES = {
    "qwen2.5-coder-0.5b-instruct": Base(
        "Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF",
        "ebb2015119c907b064c512bf053e945850b5875f",
        "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
        491_400_064,
        "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
    ),
    "qwen2.5-coder-1.5b-instruct": Base(
        "Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF",
        "f86cb2c1fa58255f8052cc32aeede1b7482d4361",
        "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
        1_117_320_768,
        "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
    ),
}


def read_tokenizer(file: Path) -> PreTrainedTokenizerFast:
    """The tokenizer in a GGUF file. Qwen's composes characters first, which the file does not say."""
    tokenizer: PreTrainedTokenizerFast = AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)
    if isinstance(tokenizer, Qwen2Tokenizer):
        tokenizer.backend_tokenizer.normalizer = normalizers.NFC()
    return tokenizer


def _convert(file: Path, directory: Path) -> None:
    read_tokenizer(file).save_pretrained(directory)
    network = AutoModelForCausalLM.from_pretrained(
        file.parent, gguf_file=file.name, dtype="bfloat16", quantization_config=GgufConfig(dequantize=True)
    )
    network.save_pretrained(directory)
