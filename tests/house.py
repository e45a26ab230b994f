"""The size of the house, and the way of a request through it: `python -m tests.house`.

Lines count with blanks and docstrings; expression nodes are those of Python's syntax trees; a request's path is the set
of the product's functions that run for one more request on a warm server.
"""

import ast
import re
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from rich.console import Console
from rich.table import Table

from tests.fakes import upstream
from tests.server.harness import boxed, serving
from tests.support import ROOT

PRODUCT = ("unprm", "server", "training", "clients")
AIMS = {
    "product: lines": "≤ 30,000",
    "product: expression nodes": "≤ 106,000",
    "product: nodes per line of code": "≤ 5.2",
    "research: lines": "≤ 2,500",
    "/vote/wrf: files": "≤ 20",
    "/vote/wrf: functions": "≤ 140",
    "a chat of three candidates: files": "≤ 34",
    "a chat of three candidates: functions": "≤ 230",
}
PRONOUN = re.compile(r"\b(?:its?|that|those|these|ones?|what|which|them|they|so|others?|each)\b", re.IGNORECASE)
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True, slots=True)
class Size:
    """Of the Python files below some directories: lines, lines of code (neither blank, nor comment, nor docstring),
    expression nodes, and the words of docstrings, with the pronouns among them."""

    lines: int
    code: int
    nodes: int
    words: int
    pronouns: int


def size(*directories: str) -> Size:
    """The size of what is in these directories of the repository."""
    texts = [file.read_text("utf-8") for name in directories for file in sorted((ROOT / name).rglob("*.py"))]
    trees = [node for text in texts for node in ast.walk(ast.parse(text))]
    documents = [text for node in trees if isinstance(node, _DOCUMENTED) and (text := ast.get_docstring(node))]
    words = " ".join(documents)
    code = sum(bool(line.strip()) and not line.strip().startswith("#") for text in texts for line in text.splitlines())
    return Size(
        lines=sum(text.count("\n") for text in texts),
        code=code - sum(bool(line.strip()) for text in documents for line in text.splitlines()),
        nodes=sum(isinstance(node, ast.expr) for node in trees),
        words=len(words.split()),
        pronouns=len(PRONOUN.findall(words)),
    )


class Trace:
    """The functions of the product that threads which were started by it run while it is on."""

    def __init__(self) -> None:
        self.seen: set[CodeType] = set()
        self._on = False

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        code = frame.f_code
        if self._on and event == "call" and code not in self.seen and _is_product(code):
            self.seen.add(code)

    @contextmanager
    def on(self) -> Iterator[None]:
        self._on = True
        try:
            yield
        finally:
            self._on = False

    @property
    def functions(self) -> set[tuple[str, str]]:
        """Their files and names; comprehensions, lambdas and class bodies belong to the function around them."""
        return {(code.co_filename, code.co_qualname.split(".<locals>")[0].split(".<")[0]) for code in self.seen}


def _is_product(code: CodeType) -> bool:
    file = Path(code.co_filename)
    return file.is_relative_to(ROOT) and file.relative_to(ROOT).parts[0] in PRODUCT


@contextmanager
def traced() -> Iterator[Trace]:
    """A trace of what all threads that begin in this block do."""
    trace = Trace()
    threading.setprofile(trace)
    try:
        yield trace
    finally:
        threading.setprofile(None)


def path(call: Callable[[Any], object], **options: Any) -> set[tuple[str, str]]:
    """The functions that the third of three equal requests runs; `call` sends one to the server that it is given."""
    with traced() as trace, serving(**options) as running:
        for _ in range(2):
            call(running)
        with trace.on():
            call(running)
    return trace.functions


def vote() -> set[tuple[str, str]]:
    """The path of a vote on three solutions."""
    body = {"problem": "How many?", "solutions": [" ".join(boxed(7)), " ".join(boxed(8)), " ".join(boxed(7))]}
    return path(lambda running: running.post("/vote/wrf", body).raise_for_status())


def chat() -> set[tuple[str, str]]:
    """The path of a chat completion with three candidates."""
    body = {"model": "m", "messages": [{"role": "user", "content": "How many?"}], "unprm": {"budget": 3}}
    texts = [" ".join(boxed(answer)) for answer in (7, 8, 7)]
    with upstream(*texts, *texts, *texts) as generator:
        return path(
            lambda running: running.post("/v1/chat/completions", body).raise_for_status(), upstream_url=generator.url
        )


def figures() -> dict[str, str]:
    """Each figure by its name."""
    product, research, tests = size(*PRODUCT), size("research"), size("tests")
    paths = {"/vote/wrf": vote(), "a chat of three candidates": chat()}
    return {
        "product: lines": f"{product.lines:,}",
        "product: expression nodes": f"{product.nodes:,}",
        "product: nodes per line of code": f"{product.nodes / product.code:.2f}",
        "product: pronouns in docstrings": f"{product.pronouns / product.words:.1%} of {product.words:,} words",
        "research: lines": f"{research.lines:,}",
        "tests: lines": f"{tests.lines:,}",
        **{f"{name}: files": str(len({file for file, _ in found})) for name, found in paths.items()},
        **{f"{name}: functions": str(len(found)) for name, found in paths.items()},
    }


def main() -> None:
    table = Table("figure", "now", "aim")
    for name, value in figures().items():
        table.add_row(name, value, AIMS.get(name, ""))
    Console().print(table)
    if "-v" in sys.argv:
        for file, name in sorted(vote()):
            print(Path(file).relative_to(ROOT), name)


if __name__ == "__main__":
    main()
