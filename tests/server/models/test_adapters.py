"""Several adapters on one base in memory, chosen by the `model` of a request."""

import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from server.models.load import load
from server.settings import Settings, SettingsInvalid
from tests.server.harness import Running, serving
from tests.server.options import read
from tests.support import columns, until
from unprm.errors import ModelInvalid
from unprm.formats.family import LAYER
from unprm.models.load import load_engine
from unprm.types import Engine

PROBLEM = "what is 12 + 34 - 5?"
SOLUTIONS = [["Step 1: 12 + 34 = 46.", "Step 2: 46 - 5 = 41."], ["Step 1: 12 + 34 = 46.", "The answer is \\boxed{5}."]]
ADMIN = {"Authorization": "Bearer admin"}


@pytest.fixture(scope="module")
def adapters(base: Path, adapter: Path) -> dict[str, Path]:
    """Two of different ranks and layers, by name."""
    from tests.tiny import write_adapter

    options = {"r": 8, "target_modules": ["o_proj", "down_proj"]}
    return {"a": adapter, "b": write_adapter(base.parent / "b", base, 2, "b", **options)}


def settings_of(base: Path, adapters: dict[str, Path], **options: Any) -> Settings:
    """Those of a server of all of them."""
    named = ",".join(f"{name}={place}" for name, place in adapters.items())
    given = {"model": base, "adapter": named, "device": "cpu", "prefix-cache-gb": 0.01} | options
    return read(Settings, [f"--{name}={value}" for name, value in given.items()])


@pytest.fixture(scope="module")
def expected(base: Path, adapters: dict[str, Path]) -> dict[str, Any]:
    """The scores of each adapter when it is merged, and its digest."""
    found = {}
    for name, place in adapters.items():
        with closing(load_engine(str(base), adapter=str(place), device="cpu")) as engine:
            near = [pytest.approx(each, abs=1e-5) for each in scores_of(engine)]
            found[name] = near, engine.description.digest
    return found


def scores_of(engine: Engine) -> Any:
    return columns(engine.score([engine.format.encode(PROBLEM, steps) for steps in SOLUTIONS])).values


def scores(running: Running, model: Any) -> list[list[float]]:
    body = {"problem": PROBLEM, "solutions": SOLUTIONS, "model": model}
    return [solution["step_scores"] for solution in running.post("/score_steps", body).json()["solutions"]]


def tensors(running: Running, name: str) -> dict[int, int]:
    """The bytes of a model's tensors, by where they are."""
    (engine,) = (each.engine for each in running.service.models if each.name == name)
    modules = engine._reader.modules  # type: ignore[attr-defined]
    every = chain.from_iterable(chain(module.parameters(), module.buffers()) for module in modules)
    return {tensor.data_ptr(): tensor.nbytes for tensor in every}


def states(running: Running) -> dict[str, str]:
    models = running.get("/admin/models", headers=ADMIN).json()["models"]
    return {model["name"]: model["state"] for model in models}


def test_a_request_chooses_an_adapter_of_a_base_in_memory(
    base: Path, adapters: dict[str, Path], expected: dict[str, Any]
) -> None:
    settings = settings_of(base, adapters, **{"admin-key": "admin"})
    models = {name: partial(load, settings, request) for name, request in settings.models().items()}
    with serving(models, partial(load, settings), admin_key="admin") as running:
        until(lambda: states(running) == {"a": "ready", "b": "ready"})
        more = {"name": "c", "model": str(base), "adapter": str(adapters["a"])}
        assert running.post("/admin/models", more, headers=ADMIN).status_code == 202
        until(lambda: states(running) == dict.fromkeys("abc", "ready"))
        with ThreadPoolExecutor(6) as pool:
            found = [*pool.map(partial(scores, running), "abc" * 4)]
        assert found == [expected[name][0] for name in "aba" * 4]
        ((first, *_), *_), ((second, *_), *_), _ = found[:3]
        assert scores(running, ["a", "b"])[0][0] == pytest.approx((first + second) / 2, abs=1e-5)

        about = {name: running.get(f"/model?name={name}").json() for name in "abc"}
        assert [about[name]["digest"] for name in "ab"] == [expected[name][1] for name in "ab"]
        held = {name: tensors(running, name) for name in "abc"}
        common = held["a"].keys() & held["b"].keys()
        assert common == held["a"].keys() & held["c"].keys()
        assert sum(held["a"][place] for place in common) > 0.8 * sum(held["a"].values())
        together = sum((held["a"] | held["b"] | held["c"]).values())
        assert sum(about[name]["memory"]["weights"] for name in "abc") == pytest.approx(together, abs=1000)

        assert running.http.delete("/admin/models/a", headers=ADMIN).status_code == 202
        assert scores(running, None) == expected["b"][0]


def test_in_bfloat16_an_adapter_s_scores_differ_by_rounding(
    base: Path, adapters: dict[str, Path], expected: dict[str, Any]
) -> None:
    settings = settings_of(base, adapters, dtype="bfloat16")
    for name, request in settings.models().items():
        with closing(load(settings, request)) as engine:
            found = scores_of(engine)
        assert found != expected[name][0]
        assert found == [pytest.approx(each.expected, abs=0.05) for each in expected[name][0]]


def test_adapters_of_a_base_are_read_each_in_its_way(base: Path, adapters: dict[str, Path]) -> None:
    from safetensors.torch import save_file
    from torch import full

    place = shutil.copytree(adapters["a"], base.parent / "value")
    config = place / "prm_config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"head": "value"}))
    save_file({f"{LAYER}.weight": full((1, 64), 0.1), f"{LAYER}.bias": full((1,), 0.5)}, place / "head.safetensors")
    alone = load_engine(str(base), adapter=str(place), device="cpu")
    settings = settings_of(base, {"a": place, "b": adapters["b"]})
    with closing(alone), closing(load(settings, settings.models()["a"])) as engine:
        assert scores_of(engine) == [pytest.approx(each, abs=1e-5) for each in scores_of(alone)]


def test_an_adapter_with_a_name_and_nothing_to_share_is_merged(base: Path, adapters: dict[str, Path]) -> None:
    settings = settings_of(base, {"mine": adapters["a"]})
    ((name, request),) = settings.models().items()
    assert name == "mine"
    with closing(load(settings, request)) as engine:
        assert not any("lora" in each for each, _ in engine._reader.modules[0].named_parameters())  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"engine": "vllm"}, "adapters share a base with --engine torch alone"),
        ({"dtype": "int8"}, "and not in int8"),
        ({"adapter": "a=nowhere/at/all,b=x"}, "--adapter 'nowhere/at/all' is not a directory here"),
    ],
)
def test_what_cannot_be_shared_is_refused(base: Path, adapters: dict[str, Path], options: Any, message: str) -> None:
    settings = settings_of(base, adapters, **options)
    with pytest.raises(ModelInvalid, match=message):
        load(settings, settings.models()["a"])


def test_an_adapter_of_another_base_is_refused(base: Path, adapters: dict[str, Path], tmp_path: Path) -> None:
    from tests.tiny import write_adapter, write_base

    other = write_adapter(tmp_path / "adapter", write_base(tmp_path / "deep", layers=3), 1, "deep")
    settings = settings_of(base, adapters | {"b": other})
    with pytest.raises(ModelInvalid, match=r"does not fit the base .*: .* tensors are missing on one side"):
        load(settings, settings.models()["b"])


def test_an_adapter_of_what_has_no_files_is_refused() -> None:
    settings = read(
        Settings, ["--model=judge", "--judge-url=http://127.0.0.1:9/v1", "--judge-model=m", "--adapter=a=x,b=y"]
    )
    with pytest.raises(ModelInvalid, match="--adapter goes with a model that has files, not with judge"):
        load(settings, settings.models()["a"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--adapter=a=x", "--adapter=a=y"], "several adapters are each given as NAME=ADAPTER, with different names"),
        (["--adapter=x,b=y"], "several adapters are each given as NAME=ADAPTER, with different names"),
        (["--adapter=x,y"], "several adapters are each given as NAME=ADAPTER, with different names"),
        (["--model=m=base", "--adapter=a=x"], "go with a single --model without a name, their base"),
        (["--model=m=base,n=base", "--adapter=a=x"], "go with a single --model without a name, their base"),
        (
            ["--model=m", "--adapter=a=x,b=y", "--adapter-revision=main"],
            "--adapter-revision goes with a single --adapter without",
        ),
        (
            ["--model=m", "--adapter=a=x,b=y", "--engine=remote", "--url=http://gpu"],
            "--engine remote goes with a single --model",
        ),
        (["--adapter="], "--adapter: "),
        (["--adapter=x"], "^--adapter needs --model, the model that it is for$"),
        (["--adapter=a=x,b=y"], "^--adapter needs --model"),
        (["--revision=main"], "^--revision needs --model"),
    ],
)
def test_adapters_that_cannot_be_told_apart_or_have_no_base_are_refused(arguments: list[str], message: str) -> None:
    with pytest.raises(SettingsInvalid, match=message):
        read(Settings, arguments)


@pytest.mark.parametrize("place", ["prm", "runs/lr=1", "./a=b"])
def test_a_single_adapter_needs_no_name(place: str) -> None:
    (request,) = read(Settings, ["--model=m", f"--adapter={place}"]).models().values()
    assert request.adapter == place
