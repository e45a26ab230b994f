"""Publishes a trained adapter: as one merged checkpoint, or as a model on the hub."""

from pathlib import Path

import torch
from huggingface_hub import HfApi

from unprm.errors import OutputMismatch
from unprm.formats.unprm import PrmConfig
from unprm.models.checkpoint import load_merged, locate, read_tokenizer

PUBLISHED = ["README.md", "*.json", "*.safetensors", "*.txt", "*.model", "*.jinja"]
APART = ["checkpoint.safetensors", "best.safetensors"]
"""Files left by the training run that are not part of the model."""


def merge_adapter(model: str, adapter: str | None, output: Path, dtype: torch.dtype) -> None:
    """Merges base and adapter into one checkpoint that `python -m server --model OUTPUT` loads.

    Arguments and errors as for `load_engine`; raises `OutputMismatch` if `output` exists and is not empty.
    """
    if output.exists() and any(output.iterdir()):
        raise OutputMismatch(f"{output} is not empty")
    files = locate(model, adapter, None, None)
    merged = load_merged(files, dtype)
    merged.save_pretrained(output)
    read_tokenizer(files.base).save_pretrained(output)
    PrmConfig.read(files.directory).model_copy(update={"base": ".", "base_revision": None}).write(output)


def push(directory: Path, repository: str) -> str:
    """Uploads a PRM's directory to the hub, with the token from the environment; returns its URL."""
    locate(str(directory), None, None, None)  # rejects a directory that is not a PRM before anything is sent
    api = HfApi()
    address = api.create_repo(repository, exist_ok=True)
    api.upload_folder(folder_path=str(directory), repo_id=repository, allow_patterns=PUBLISHED, ignore_patterns=APART)
    return str(address)
