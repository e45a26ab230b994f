"""How the server loads a model; the only module of the server that needs torch, and only for a PRM in
this process."""

import math
import os
import threading
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

from unprm.errors import ModelInvalid
from unprm.models.options import JUDGE, LoadModelRequest
from unprm.types import Engine

from ..settings import Settings

_IMPORTING = threading.Lock()
"""Held while a model's thread imports what it needs: modules that import each other could meet half-made ones."""


def load(
    settings: Settings, request: LoadModelRequest, observe_judge: Callable[[float, str], None] | None = None
) -> Engine:
    """The engine of a model; raises `ModelInvalid`. `observe_judge` is that of a judge's `OpenAIClient`."""
    if request.adapter and request.model == JUDGE:
        raise ModelInvalid(f"--adapter goes with a model that has files, not with {request.model}")
    if request.model == JUDGE:
        from unprm.models.judge import load_judge
        from unprm.openai.client import ignore

        return load_judge(request, settings, settings.max_batch_seconds, observe_judge or ignore)
    if settings.engine == "remote":
        with _IMPORTING:
            os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")  # that PyTorch isn't there
            from unprm.models.remote import load_remote
        return load_remote(request, settings)
    if find_spec("torch") is None:
        raise ModelInvalid("a PRM here needs PyTorch: pip install '.[serve]' in unprm's directory, or --engine remote")
    with _IMPORTING:  # only here: the server itself needs no torch
        import torch
        from transformers.utils import logging as transformers_logging

        from unprm.models.load import load_model

    # missing and unexpected tensors, which it warns of, are checked here; its progress bars are no log lines
    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    torch.set_num_threads(within_quota(torch.get_num_threads()))
    options = settings.model_copy(update={"memory": settings.memory_of_each})
    sharers = settings.sharers if request.adapter and request.model == settings.model[0] else 1
    return load_model(request, options, sharers)


def within_quota(threads: int, cgroup: Path = Path("/sys/fs/cgroup")) -> int:
    """At most as many threads as the container has processors, by its cgroup's quota (version 2, or 1): PyTorch knows
    which it may run on, but not for how much of the time."""
    for names in (["cpu.max"], ["cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us"]):
        try:
            quota, period = " ".join((cgroup / name).read_text("ascii") for name in names).split()
        except OSError:
            continue
        return threads if quota in ("max", "-1") else min(threads, math.ceil(int(quota) / int(period)))
    return threads
