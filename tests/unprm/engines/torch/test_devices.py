"""The device that a model runs on is told with its reason, and a GPU that PyTorch can't use isn't passed over."""

import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from unprm import mini
from unprm.engines.torch.devices import Gpu, multiplies_bf16_fast, multiplies_int8_fast, pick_device
from unprm.errors import ModelInvalid
from unprm.models.load import _device
from unprm.models.options import EngineOptions, ModelSpec

CPU = Path("/proc/cpuinfo")
USED, ABSENT, UNUSED = Gpu(True), Gpu(False), Gpu(False, "its driver is too old")


@pytest.mark.parametrize(
    ("gpu", "device", "line"),
    [
        (USED, "cuda", "device cuda: PyTorch can use a GPU"),
        (ABSENT, "cpu", "device cpu: PyTorch finds no GPU, and the machine has none by NVIDIA"),
        (UNUSED, "cpu", "device cpu: PyTorch can't use the machine's GPU (its driver is too old)"),
    ],
)
def test_auto_says_what_it_took_and_why(gpu, device, line, caplog):
    caplog.set_level(logging.INFO)
    assert pick_device("auto", gpu, falls_back=True) == device
    assert [record.getMessage() for record in caplog.records] == [line]
    assert caplog.records[0].levelname == ("WARNING" if gpu is UNUSED else "INFO")


def test_a_gpu_that_can_not_be_used_is_left_only_if_that_is_asked():
    with pytest.raises(
        ModelInvalid, match=r"can't use the machine's GPU \(its driver is too old\).* CUDA_VISIBLE_DEVICES='', or"
    ):
        pick_device("auto", UNUSED)
    for gpu in (USED, ABSENT, UNUSED):
        assert pick_device("cpu", gpu) == "cpu"


@pytest.mark.parametrize(("gpu", "why"), [(ABSENT, "finds none$"), (UNUSED, r"finds none \(its driver is too old\)$")])
@pytest.mark.parametrize("falls_back", [True, False])
def test_cuda_is_refused_where_there_is_none(gpu, why, falls_back):
    assert pick_device("cuda", USED) == "cuda"
    with pytest.raises(ModelInvalid, match=why):
        pick_device("cuda", gpu, falls_back)


@pytest.mark.skipif(torch.cuda.is_available(), reason="tells what happens without CUDA")
def test_the_machine_s_gpus_are_found_without_pytorch(tmp_path, monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    for name in ("nvidiactl", "nvidia-uvm", "nvme0"):
        (tmp_path / name).touch()
    assert Gpu.find(tmp_path) == Gpu(False)
    (tmp_path / "nvidia1").touch()
    assert Gpu.find(tmp_path).fault.startswith(f"PyTorch {torch.__version__}, built for ")
    for hidden in ("", "-1"):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", hidden)
        assert Gpu.find(tmp_path) == Gpu(False)


def test_without_avx_512_few_bits_are_multiplied_slowly():
    asks = (
        "import torch; from unprm.engines.torch import devices as d; "
        "print(d.multiplies_int8_fast(), d.multiplies_bf16_fast(torch.device('cpu')))"
    )
    environment = {**os.environ, "ATEN_CPU_CAPABILITY": "avx2"}
    made = subprocess.run(
        [sys.executable, "-c", asks], env=environment, capture_output=True, text=True, check=True, timeout=120
    )
    assert made.stdout.split() == ["False", "False"]


@pytest.mark.skipif(not CPU.exists(), reason="Linux tells what a processor has")
def test_bfloat16_takes_instructions_of_its_own():
    has_any = not {"avx512_bf16", "amx_tile"}.isdisjoint(CPU.read_text("utf-8").split())
    assert multiplies_bf16_fast(torch.device("cpu")) == (multiplies_int8_fast() and has_any)


@pytest.mark.parametrize("model", [mini.NAME, mini.ROLLOUTS])
def test_the_embedded_models_start_all_the_same(model):
    assert _device(ModelSpec(model=model), EngineOptions(), UNUSED) == "cpu"
    with pytest.raises(ModelInvalid):
        _device(ModelSpec(model=model), EngineOptions(device="cuda"), UNUSED)


def test_other_models_do_not():
    with pytest.raises(ModelInvalid, match="--device cpu"):
        _device(ModelSpec(model="somebody/prm"), EngineOptions(), UNUSED)
