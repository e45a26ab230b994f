"""The documentation: what it names exists, its links lead somewhere, and its tables are those of the code."""

import ast
import json
import operator
import re
import tomllib
from pathlib import Path

import pytest

from benchmarks import sizing
from docs.site.stage import linked, stage
from tests import house
from tests.support import ROOT
from training.prm.train_settings import TRAIN_PRESETS, TrainSettings
from training.stage_settings import PRESETS
from unprm.mini.domain import knows
from unprm.votes.registry import VOTES

PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
NAMED = re.compile(r"`((?:unprm|server|training|research|clients|tests|benchmarks|docker)/[\w/.-]+\.\w+)(?:::(\w+))?`")
LINK = re.compile(r"\]\(([^)\s]+)\)")


def anchors(page: Path) -> set[str]:
    """As GitHub makes them of headings."""
    headings = re.findall(r"^#+ (.*)$", page.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_what_a_page_names_exists(page: Path) -> None:
    for name, symbol in NAMED.findall(page.read_text("utf-8")):
        file = ROOT / name
        assert file.exists(), f"{page.name} names {name}"
        if symbol:
            defined = {getattr(node, "name", None) for node in ast.walk(ast.parse(file.read_text("utf-8")))}
            assert symbol in defined, f"{page.name} names {name}::{symbol}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for link in LINK.findall(page.read_text("utf-8")):
        if link.startswith(("http:", "https:", "mailto:")):
            continue
        path, _, anchor = link.partition("#")
        target = page if not path else page.parent / path
        assert target.is_file(), f"{page.name} links to {link}"
        if anchor and target.suffix == ".md":
            assert anchor in anchors(target), f"{page.name} links to {link}"


def test_the_map_of_the_paper_names_code_and_tests() -> None:
    rows = re.findall(r"^\| [^|]+ \| `([^`]+)` \| `([^`]+)` \|$", (ROOT / "docs/lab/paper.md").read_text("utf-8"), re.M)
    assert len(rows) >= 21
    assert all(test.startswith("tests/") for _, test in rows)


def test_the_differences_from_the_paper_are_those_of_the_presets() -> None:
    page = (ROOT / "docs/lab/paper.md").read_text("utf-8").partition("## Where the paper's text")[2]
    _, _, *rows = [line.strip("| ").split(" | ") for line in page.splitlines() if line.startswith("|")]
    assert len(rows) >= 20
    assert {len(row) for row in rows} <= {5, 6}  # the last cell may be empty
    for column, name in ((3, "paper"), (4, "authors")):
        train = TrainSettings(base="", data=(), output=Path(), **TRAIN_PRESETS[name])
        named = [setting for row in rows for setting in re.findall(r"`([\w.]+)=([^`]+)`", row[column])]
        assert len(named) > 15
        for setting, value in named:
            stage, _, field = setting.partition(".")
            settings = train if stage == "train" else getattr(PRESETS[name], stage)
            assert str(operator.attrgetter(field)(settings)) == value, f"{name}: {setting}"


def test_the_table_of_sizes_is_that_of_the_plan() -> None:
    """If this fails: `python -m benchmarks.sizing`."""
    page = (ROOT / "docs/hardware.md").read_text("utf-8").partition("## Memory")[2]
    assert [line for line in page.splitlines() if line.startswith("|")] == sizing.table().splitlines()


def test_the_table_of_votes_is_that_of_the_registry() -> None:
    """What each elects; when it is good, and what it gains, only the page says."""
    section = (ROOT / "docs/concepts.md").read_text("utf-8").partition("## Which vote when")[2].partition("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("| `")]
    said = [f"| `{v.name}` | {v.summary} | " for v in VOTES.values()]
    assert [row[: len(own)] for row, own in zip(rows, said, strict=True)] == said


@pytest.mark.parametrize(
    "page",
    [
        "README.md",
        "docs/requests.md",
        "docs/gateway.md",
        "docs/client.md",
        "docs/trajectories.md",
        "clients/examples/curl.sh",
        "docs/plugs.md",
    ],
)
def test_examples_are_problems_that_the_demonstration_knows(page: str) -> None:
    said = re.compile(r'(?:\bproblem"?(?:: | ?= ?)|"user", "content": )"([^"$]+)"', re.IGNORECASE)
    problems = said.findall((ROOT / page).read_text("utf-8"))
    assert problems
    assert [problem for problem in problems if not knows(problem)] == []


def test_the_order_of_imports_is_that_of_the_contract() -> None:
    page = " ".join((ROOT / "CONTRIBUTING.md").read_text("utf-8").split())
    told = page.partition("Imports go one way: ")[2].partition(". ")[0]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    layers = project["tool"]["importlinter"]["contracts"][0]["layers"]
    assert told == " → ".join(f"`{layer.replace('unprm.', '')}`" for layer in layers)


def test_the_aims_of_the_house_are_those_that_are_printed() -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text("utf-8").partition("## How large the house is")[2].partition("\n## ")[0]
    rows = [line.strip("| ").split(" | ") for line in page.splitlines() if line.startswith("| ")][1:]
    assert {name: aim for name, *_, aim in rows if aim != "–"} == house.AIMS


def test_the_readme_is_short_and_spells_the_program_one_way() -> None:
    page = (ROOT / "README.md").read_text("utf-8")
    assert len(page.splitlines()) <= 100
    assert re.findall(r"python -m (?:server|training|unprm_client)\b", page) == []


def test_the_gain_that_the_readme_names_is_the_lab_s() -> None:
    section = (
        (ROOT / "docs/lab/votes.md").read_text("utf-8").partition("## Votes on real scores")[2].partition("###")[0]
    )
    rows = {row.split(" | ")[0]: re.findall(r"\d+\.\d", row) for row in section.splitlines() if row.startswith("| ")}
    majority, wrf = rows["| majority"][-3], rows["| wrf"][-7]  # among all candidates, before the interval
    gain, low, high = rows["| wrf"][-4:-1]
    page = " ".join((ROOT / "README.md").read_text("utf-8").split())
    assert f"right on {majority} % and the default vote on {wrf} %" in page
    assert f"{gain} points more, 95 % interval {low} to {high}" in page


def test_every_page_is_in_the_index() -> None:
    index = (ROOT / "docs/README.md").read_text("utf-8")
    pages = {page.name for page in (ROOT / "docs").glob("*.md")} - {"README.md"}
    assert not {page for page in pages if f"({page})" not in index}


def test_every_page_says_first_of_which_kind_it_is() -> None:
    for page in (ROOT / "docs").glob("*.md"):
        third = page.read_text("utf-8").splitlines()[2]
        assert page.name == "README.md" or re.match(r"\*(Tutorial|How to|Reference|Explanation)\.\*", third), page.name


def test_every_page_is_in_the_sites_navigation() -> None:
    nav = (ROOT / "docs/site/mkdocs.yml").read_text("utf-8").partition("nav:\n")[2]
    pages = {str(page.relative_to(ROOT)) for page in PAGES}
    assert sorted(re.findall(r"\S+\.md", nav)) == sorted(pages | {"docs/api.md"})
    assert pages <= {str(path) for path in linked()}


def test_the_sites_api_reference_is_the_apps_and_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    stage(tmp_path)
    page = (tmp_path / "pages/docs/api.md").read_text("utf-8")
    loaded = re.findall(r'(?:src|href)="([^"]+)"', page)
    assert len(loaded) == 3
    assert all((tmp_path / "pages/docs" / file).stat().st_size for file in loaded)
    operations = json.loads((tmp_path / "pages/docs/api/openapi.json").read_text("utf-8"))["paths"]
    assert {"/vote", "/v1/chat/completions", "/admin/models/{name}"} <= operations.keys()
