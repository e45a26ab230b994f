"""Sends the requests of a journal to a server again, and shows where its answers differ.

unprm replay journal.db http://127.0.0.1:8000
"""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import httpx
import typer
from rich.console import Console
from rich.progress import track
from rich.table import Table
from rich.text import Text

_ANSWERED = "SELECT request_id, path, request, response FROM requests WHERE status = 200 ORDER BY id"
_SECONDS = 300.0
_SHOWN = 20


class Difference(NamedTuple):
    """Where an answer differs: JSON pointer, and the old and new value there."""

    pointer: str
    was: object
    now: object


def replay(
    journal: Annotated[Path, typer.Argument(exists=True, dir_okay=False, help="File that `--journal` wrote.")],
    url: Annotated[str, typer.Argument(help="Address of the server to compare.")],
    tolerance: Annotated[float, typer.Option(min=0, help="Numbers that differ by at most this are equal.")] = 1e-3,
    key: Annotated[
        str | None, typer.Option(envvar=["UNPRM_CLIENT_KEY", "UNPRM_API_KEY"], help="API key of the server.")
    ] = None,
) -> None:
    """Repeats the requests of a journal that got a 200. Exit status 1 if an answer differs other than in `usage`."""
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})
    found = []
    with closing(_opened(journal)) as database, httpx.Client(base_url=url, headers=headers, timeout=_SECONDS) as http:
        (count,) = database.execute("SELECT count(*) FROM requests WHERE status = 200").fetchone()
        rows = database.execute(_ANSWERED)
        for request_id, path, request, response in track(rows, "asking again", count, console=Console(stderr=True)):
            answer = http.post(path.decode(), content=request)
            if answer.status_code == 200:
                first = next(_differ(json.loads(response), answer.json(), tolerance), None)
            else:
                first = Difference("", 200, answer.status_code)
            if first is not None:
                found.append((request_id, path, first))
    _show(found, count)
    raise typer.Exit(1 if found else 0)


def _opened(journal: Path) -> sqlite3.Connection:
    database = sqlite3.connect(f"{journal.absolute().as_uri()}?mode=ro", uri=True)
    database.text_factory = bytes  # bodies as they were sent, text or not
    return database


def _differ(was: Any, now: Any, tolerance: float, pointer: str = "") -> Iterator[Difference]:
    if isinstance(was, dict) and isinstance(now, dict):
        for name in was | now:
            if pointer or name != "usage":
                yield from _differ(was.get(name), now.get(name), tolerance, f"{pointer}/{name}")
    elif isinstance(was, list) and isinstance(now, list) and len(was) == len(now):
        for index, pair in enumerate(zip(was, now, strict=True)):
            yield from _differ(*pair, tolerance, f"{pointer}/{index}")
    elif isinstance(was, float) and isinstance(now, (int, float)):
        if abs(was - now) > tolerance:
            yield Difference(pointer, was, now)
    elif was != now:
        yield Difference(pointer, was, now)


def _show(found: list[tuple[bytes, bytes, Difference]], count: int) -> None:
    console = Console()
    console.print(f"{count - len(found)} of {count} answers are the same")
    if not found:
        return
    table = Table("request", "path", "where", "was", "is")
    for request_id, path, difference in found[:_SHOWN]:
        where, was, now = difference.pointer or "status", repr(difference.was), repr(difference.now)
        # as `Text`: a caller's text is no markup
        table.add_row(*map(Text, (request_id.decode(), path.decode(), where, was, now)))
    console.print(table)
    if len(found) > _SHOWN:
        console.print(f"and {len(found) - _SHOWN} more")
