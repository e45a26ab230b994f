"""The documentation's commands that make data and models and measure them, run as they stand; `make test-docs`.

What a test puts in another's place (an amount, an address, a sampler that isn't here) it names, and it has to be there.
"""

import json
import re
from collections.abc import Callable

import pytest

from tests.commands.blocks import Block, changed, runs
from tests.commands.world import PROBLEM, REASONERS, REQUEST, RIGHT, WRONG, World, rewards
from tests.installed import Environment
from tests.support import ROOT, TEST_DATA, tables
from training.data.sample import make_mini
from unprm import mini

pytestmark = [pytest.mark.docs, pytest.mark.timeout(1800)]

LABELLED = [
    {"problem": PROBLEM, "steps": RIGHT, "labels": [True, True]},
    {"problem": PROBLEM, "steps": WRONG, "labels": [False, False]},
]
DOCS = ROOT / "docs"
PROCESSBENCH = TEST_DATA / "processbench"
PRMBENCH = TEST_DATA / "prmbench" / "solutions.jsonl"


def ask(world: World, count: int) -> None:
    """Writes the questions that the pages call math.jsonl."""
    world.write(
        "math.jsonl",
        [{"problem": question.problem, "answer": question.gold_answer} for question in make_mini(count, 1)],
    )


def publish_processbench(world: World) -> None:
    """Right and wrong solutions, a few, under the names of all subsets."""
    for name, source in zip(("gsm8k", "math", "olympiadbench", "omnimath"), ("gsm8k", "math") * 2, strict=True):
        lines = (PROCESSBENCH / f"{source}.jsonl").read_text("utf-8").splitlines(keepends=True)
        world.path(f"processbench/{name}.jsonl").write_text("".join(lines[11:15]), "utf-8")
    world.publish_data("Qwen", "process_bench", {file.stem: file for file in world.path("processbench").iterdir()})


def check_processbench(world: World, run: str) -> None:
    figures = json.loads(world.path(f"{run}/results.json").read_text("utf-8"))
    assert figures["fixed"]["subsets"].keys() == {"gsm8k", "math", "olympiadbench", "omnimath"}


def publish_prmbench(world: World) -> None:
    """As few of its solutions as make all categories."""
    lines = PRMBENCH.read_text("utf-8").splitlines(keepends=True)
    world.path("prmbench.jsonl").write_text("".join([*lines[:16:2], lines[-1]]), "utf-8")
    world.publish_data("hitsmy", "prm_bench_preview", {"train": world.path("prmbench.jsonl")})


def check_prmbench(world: World, run: str) -> None:
    figures = json.loads(world.path(f"{run}/results.json").read_text("utf-8"))
    assert figures["solutions"] == len(figures["categories"]) == 9


@runs("docs/first-prm.md", "unprm build", "unprm train", "unprm sample", "unprm serve")
def test_a_first_prm_is_made_measured_and_served(
    world: World, environment_with: Callable[[str], Environment], blocks: list[Block]
) -> None:
    """With what the page installs, and nothing else."""
    build, train, evaluate, serve = (block.text for block in blocks)
    alone = environment_with("train").variables
    world.run(changed(build, {"--limit 60": "--limit 2"}), **alone)
    output = world.run("python -c \"import datasets; print(*datasets.load_dataset('runs/mini/dataset')['train'][0])\"")
    assert output.splitlines()[-1].split() == ["prompt", "answer", "completions", "label"]
    world.run(changed(train, {"--epochs 4": "--epochs 1"}), **alone)
    world.run(changed(evaluate, {"--limit 60": "--limit 2"}), **alone)
    assert "| wrf | min |" in world.path("runs/held-out/votes.md").read_text("utf-8")
    with world.serving(serve, **alone) as client:
        assert all(0 < reward < 1 for reward in rewards(client))


@runs("docs/data.md", "unprm merge annotated.jsonl")
def test_a_data_set_is_made_stage_by_stage(world: World, reasoner: str, blocks: list[Block]) -> None:
    ask(world, 2)
    second = reasoner.replace("127.0.0.1", "localhost")
    servers = {"http://gpu-1:8000": reasoner, "http://gpu-2:8000": second}
    output = world.run(changed(blocks[0].text, servers | {"select ": "select --m 1 --n 2 "}))
    assert [len(row["completions"]) for row in world.rows("samples.jsonl")] == [32] * 2
    assert 0 < len(world.rows("dataset/data/train.jsonl")) <= len(world.rows("annotated.jsonl"))
    assert "bayes" in output


@runs("docs/training.md", "steps.jsonl --output my-prm")
def test_a_prm_is_trained_and_served(world: World, blocks: list[Block]) -> None:
    world.write("steps.jsonl", LABELLED * 8)
    with world.serving(blocks[0].text) as client:
        assert client.get("/model").json().items() >= {"name": "my-prm", "base": REASONERS[1]}.items()
        assert all(0 < reward < 1 for reward in rewards(client))


@runs("docs/training.md", "--head probe")
def test_a_probe_is_trained_and_served(world: World, blocks: list[Block]) -> None:
    world.write(
        "steps.jsonl", [row | {"problem": f"{row['problem']} {number}"} for number in range(6) for row in LABELLED]
    )
    with world.serving(blocks[0].text) as client:
        assert client.get("/model").json().items() >= {"name": "my-probe", "family": "probe"}.items()
        assert all(0 < reward < 1 for reward in rewards(client))


@runs("docs/training.md", "unprm convert")
def test_step_labels_are_converted(world: World, blocks: list[Block]) -> None:
    shepherd = TEST_DATA / "layouts" / "math-shepherd.jsonl"
    world.link("math-shepherd.jsonl", shepherd)
    world.write("hub.jsonl", [{"prompt": PROBLEM, "completions": RIGHT, "labels": [True, True]}])
    world.publish_data("trl-lib", "math_shepherd", {"train": world.path("hub.jsonl")})
    world.run(blocks[0].text)
    assert world.rows("steps.jsonl") == LABELLED[:1]
    assert [row["labels"][0] for row in world.rows("trl.jsonl")] == [True, True, False]
    missing = world.run("unprm convert nobody/nothing a.jsonl --to trl || true")
    assert "neither a file here nor a data set of the hub" in missing


@runs("docs/from-trl.md", "unprm train")
def test_trl_s_data_train_a_prm_that_is_served(world: World, blocks: list[Block]) -> None:
    fields = {"problem": "prompt", "steps": "completions", "labels": "labels"}
    world.write("stepwise.jsonl", [{fields[name]: value for name, value in row.items()} for row in LABELLED])
    with world.serving(blocks[0].text) as client:
        assert all(0 < reward < 1 for reward in rewards(client))
    adapter = json.loads(world.path("my-prm/adapter_config.json").read_text("utf-8"))
    assert (adapter["r"], adapter["lora_alpha"], adapter["lora_dropout"]) == (16, 32, 0)
    card = world.path("my-prm/README.md").read_text("utf-8")
    assert "2 (0 dropped" in card


@runs("docs/training.md", "evaluate processbench")
def test_a_prm_is_measured(world: World, blocks: list[Block]) -> None:
    world.link("my-prm", mini.ADAPTER)
    publish_processbench(world)
    publish_prmbench(world)
    candidates = [{"text": "\n".join(steps)} for steps in REQUEST["solutions"] * 2]
    world.write("samples.jsonl", [{"problem": PROBLEM, "answer": "83", "candidates": candidates}] * 2)
    world.run(blocks[0].text)
    check_processbench(world, "runs/processbench/my-prm")
    check_prmbench(world, "runs/prmbench/my-prm")


@runs("docs/lab/searches.md", "research study")
def test_all_searches_are_compared(world: World, blocks: list[Block]) -> None:
    world.run(changed(blocks[0].text, {"--limit 320": "--limit 1", "select ": "select --m 1 --n 2 "}))
    rows = re.findall(r"^\| ([\w+.-]+) ", world.path("runs/study/study.md").read_text("utf-8"), re.MULTILINE)
    assert {"uncertainty", "uncertainty-literal", "bayes", "adaptive_binary"} <= set(rows)


@runs("docs/lab/votes.md", "evaluate best-of-n")
def test_votes_on_real_scores(world: World, blocks: list[Block]) -> None:
    world.link("docs", DOCS)
    pools = "{} runs/real/qwen runs/real/mini"
    slow = f"votes {pools} --candidates 4"  # on the largest pool
    fewer = {slow.format("runs/real/math500"): slow.format("")}
    world.run(changed(blocks[0].text, {"--limit 250": "--limit 3"} | fewer))
    page = tables((DOCS / "lab" / "votes.md").read_text("utf-8"))
    for name, pool in (("math500/votes.md", "min"), ("votes.md", "math500")):
        (measured,) = tables(world.path(f"runs/real/{name}").read_text("utf-8"))
        shown = next(table for table in page if table[0].keys() <= measured[0].keys())
        rows = [row for row in shown if pool in row.values()]
        assert rows
        assert [row for row in rows if not any(row.items() <= each.items() for each in measured)] == []
    assert world.path("runs/real/votes-4.md").exists()
    assert "| cisc | mini |" in world.path("runs/real/votes.md").read_text("utf-8")


@runs("docs/lab/votes.md", "research recorded")
def test_first_errors_on_real_scores(world: World, blocks: list[Block]) -> None:
    world.link("tests/data", DOCS.parent / "tests" / "data")
    output = world.run(blocks[0].text)
    page = tables((DOCS / "lab" / "votes.md").read_text("utf-8"))
    (shown,) = (table for table in page if "right ones accepted" in table[0])
    assert [cell for row in shown for cell in row.values() if cell not in output] == []


@runs("docs/lab/uncertainty.md", "research ideal")
def test_searches_with_perfect_rollouts(world: World, blocks: list[Block]) -> None:
    world.link("docs", DOCS)
    output = world.run(blocks[0].text)
    assert "| uncertainty-literal | 1.22 |" in output
    assert "| uncertainty-literal | 1.22 |" in (DOCS / "lab" / "uncertainty.md").read_text("utf-8")


@runs("docs/lab/paper-scale.md", "for model in")
def test_the_paper_s_chain(world: World, blocks: list[Block]) -> None:
    ask(world, 1)
    publish_processbench(world)
    publish_prmbench(world)
    fewer = {"unprm sample": "unprm sample --k 8", "unprm select": "unprm select --m 1 --n 1"}
    output = world.run(changed(blocks[0].text, fewer | {"--sampler vllm": "--sampler transformers"}))
    assert "Llama-3.1-8B-Instruct" in output
    check_processbench(world, "runs/paper/processbench/UnPRM40K")
    check_prmbench(world, "runs/paper/prmbench/UnPRM40K")


@runs("docs/lab/paper-scale.md", "qintongli/GSM-Plus")
def test_votes_on_gsm_plus(world: World, blocks: list[Block]) -> None:
    kinds = ("digit expansion", "adding operation", "critical thinking")
    rows = [
        {"question": question.problem, "answer": question.gold_answer if kind != kinds[2] else "None"}
        | {"perturbation_type": kind}
        for kind in kinds
        for question in make_mini(2, kinds.index(kind))
    ]
    world.write("plus.jsonl", rows)
    world.publish_data("qintongli", "gsm-plus", {"test": world.path("plus.jsonl")})
    world.link("runs/paper/prm", mini.ADAPTER)
    fewer = {"--limit 50": "--limit 1", "--k 128": "--k 2", "--sampler vllm": "--sampler transformers"}
    output = world.run(changed(blocks[0].text, fewer))
    assert "2 questions whose answer is None were left out" in output
    drawn = [row["problem"] for row in world.rows("runs/paper/gsm-plus.jsonl")]
    types = [row["perturbation_type"] for row in rows if row["question"] in drawn]
    assert types == list(kinds[:2])
    assert "| wrf |" in world.path("runs/paper/best-of-n/UnPRM40K/votes.md").read_text("utf-8")


@runs("docs/lab/paper-scale.md", "torchrun")
def test_the_chain_on_a_cluster(world: World, reasoner: str, blocks: list[Block]) -> None:
    """Each of its two ways from the start."""
    ask(world, 1)
    model = f"model={REASONERS[0]} run=runs\n"
    world.run(
        f"{model} unprm sample --questions math.jsonl --k 8 --model $model --output $run/samples.jsonl\n"
        "unprm select $run/samples.jsonl --m 1 --n 1 --output $run/selected.jsonl"
    )
    annotated = f"runs/paper/annotated/{REASONERS[0].rpartition('/')[2]}.jsonl"
    by_servers, trained = blocks[0].text.split("\n\n")
    servers = {"http://gpu-1:8001": reasoner, "http://gpu-2:8001": reasoner.replace("127.0.0.1", "localhost")}
    world.run(model + changed(by_servers, servers))
    assert world.rows(annotated)
    assert world.calls == [["vllm", "serve", REASONERS[0], "--port", "8001"]]
    world.write("runs/paper/UnPRM40K/data/train.jsonl", LABELLED * 8)
    output = world.run(changed(trained, {"--nproc-per-node 8": "--nproc-per-node 2"}))
    assert output.count("wrote") == output.count("memory: ") == 1  # one of the processes speaks for both
    assert world.path("runs/paper/prm/adapter_model.safetensors").exists()
