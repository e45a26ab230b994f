"""The device that a model runs on, and what it multiplies fast."""

import logging
import os
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import torch

from unprm.errors import ModelInvalid

logger = logging.getLogger(__name__)

_BF16_INSTRUCTIONS = "_is_avx512_bf16_supported", "_is_amx_tile_supported"
"""Functions of `torch.cpu`; an older PyTorch lacks some."""


@dataclass(frozen=True, slots=True)
class Gpu:
    """Whether PyTorch can use a GPU. `fault`: why not, if the machine has one by NVIDIA."""

    usable: bool
    fault: str | None = None

    @classmethod
    def find(cls, devices: Path = Path("/dev")) -> Self:
        """What PyTorch finds, without initialising CUDA, which keeps vLLM from forking. Hidden GPUs are absent."""
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            usable = torch.cuda.is_available()
        hidden = os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1")
        if usable or hidden or not any(devices.glob("nvidia[0-9]*")):
            return cls(usable)
        reasons = [str(warning.message).partition("\n")[0] for warning in said]
        built = f"CUDA {torch.version.cuda}" if torch.version.cuda else "no CUDA"
        return cls(False, "; ".join([f"PyTorch {torch.__version__}, built for {built}", *reasons]))


def pick_device(asked: str, gpu: Gpu, falls_back: bool = False) -> str:
    """ "cuda" or "cpu"; for "auto" the GPU, if there is one. Raises `ModelInvalid` if PyTorch can't use a GPU that is
    `asked` for, or, unless `falls_back`, the machine's."""
    if asked == "cpu":
        return asked
    if gpu.usable:
        logger.info("device cuda: PyTorch can use a GPU")
        return "cuda"
    if asked == "cuda":
        raise ModelInvalid(f"--device cuda needs a CUDA device, and PyTorch finds none{_reason(gpu)}")
    if gpu.fault is None:
        logger.info("device cpu: PyTorch finds no GPU, and the machine has none by NVIDIA")
    elif falls_back:
        logger.warning("device cpu: PyTorch can't use the machine's GPU%s", _reason(gpu))
    else:
        raise ModelInvalid(
            f"PyTorch can't use the machine's GPU{_reason(gpu)}. Install a PyTorch that fits its driver, or choose the "
            "CPU: CUDA_VISIBLE_DEVICES='', or --device cpu where there is this option"
        )
    return "cpu"


def _reason(gpu: Gpu) -> str:
    return f" ({gpu.fault})" if gpu.fault else ""


def multiplies_int8_fast() -> bool:
    """Whether a CPU multiplies int8 as fast as float32: with AVX-512, unless `ATEN_CPU_CAPABILITY` hides it."""
    return torch.backends.cpu.get_cpu_capability().startswith("AVX512")


def multiplies_bf16_fast(device: torch.device) -> bool:
    """Whether a device multiplies bfloat16 as fast as float32: GPUs since Ampere, CPUs with AVX512-BF16 or AMX."""
    if device.type == "cuda":
        return torch.cuda.get_device_capability(device) >= (8, 0)
    return multiplies_int8_fast() and any(getattr(torch.cpu, name, bool)() for name in _BF16_INSTRUCTIONS)
