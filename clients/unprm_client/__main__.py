"""Scores and votes in a terminal.

unprm vote requests.jsonl --strategy hmr
echo '{"problem": "…", "solutions": ["…", "…"]}' | unprm score --json
"""

import asyncio
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import from_json
from rich.console import Console
from rich.progress import Progress

from unprm.commands import group, run, with_options
from unprm.votes.registry import Strategy
from unprm.wire import CompareResponse, ScoreRequest, ScoreResponse, VoteResponse
from unprm_client import _base, bench, terminal
from unprm_client._client import AsyncClient, Client
from unprm_client.errors import ClientError
from unprm_client.settings import SUMMARIES, with_settings

app = group("Scores and votes in a terminal.")
app.add_typer(bench.app, name="bench")

File = Annotated[
    str, typer.Argument(help="Requests in the server's format: one JSON object, or one per line; - reads stdin.")
]
Url = Annotated[str, typer.Option(envvar="UNPRM_CLIENT_URL", help="URL of the server.")]
Key = Annotated[str | None, typer.Option(envvar="UNPRM_CLIENT_KEY", help="API key.", show_default=False)]
Timeout = Annotated[float, typer.Option(min=0.1, help="Seconds for a request, including all its attempts.")]
_READING = ("split", "extraction")
"""Fields of a request that say how its solutions are read."""


def _option(field: FieldInfo, description: str) -> tuple[None, Any]:
    """A field of a request as an option, which is only sent if it is given."""
    hint: Any = field.annotation
    default = False if field.default is None else str(field.default)
    return None, Annotated[hint | None, typer.Option(help=description, show_default=default)]


@dataclass(frozen=True, slots=True)
class Asking:
    """How a server is asked, and what is printed."""

    url: Url = _base.URL
    key: Key = None
    timeout: Timeout = _base.SECONDS
    concurrency: Annotated[int, typer.Option(min=1, help="Number of concurrent requests.")] = 8
    as_json: Annotated[bool, typer.Option("--json", help="Print the server's answers, one JSON object per line.")] = (
        False
    )

    def ask(self, operation: str, file: str, **fields: object) -> None:
        """Makes the client's call `operation` for each request of a file, with the given fields set."""
        requests = _read(file, **fields)
        console = Console(stderr=True)
        hidden = len(requests) == 1 or not console.is_terminal
        # what is printed goes above the bar, but into a file if it is to
        bar = Progress(console=console, disable=hidden, redirect_stdout=sys.stdout.isatty())
        with Client(self.url, api_key=self.key, timeout=self.timeout) as client, bar:
            outcomes = getattr(client, operation)(requests=requests, concurrency=self.concurrency)
            _show(requests, bar.track(outcomes, len(requests), description="answered"), self.as_json)


@app.command()
@with_options
@with_settings(_option, *_READING, votes=False)
def score(asking: Asking, file: File = "-", **settings: Any) -> None:
    """Scores the steps of solutions."""
    asking.ask("score_all", file, **settings)


@app.command()
@with_options
@with_settings(_option, *_READING)
def vote(
    asking: Asking,
    file: File = "-",
    strategy: Annotated[Strategy | None, typer.Option(help=SUMMARIES, show_default="the server's")] = None,
    **settings: Any,
) -> None:
    """Votes for the best answer."""
    asking.ask("vote_all", file, strategy=strategy, **settings)


@app.command()
@with_options
@with_settings(_option, *_READING)
def compare(asking: Asking, file: File = "-", **settings: Any) -> None:
    """Takes all votes at once."""
    asking.ask("compare_all", file, **settings)


@app.command()
def mcp(
    transport: Annotated[
        Literal["stdio", "http"],
        typer.Option(help="stdio: the agent starts this program; http: it connects to /mcp (streamable)."),
    ] = "stdio",
    url: Url = _base.URL,
    key: Key = None,
    timeout: Timeout = _base.SECONDS,
    host: Annotated[
        str, typer.Option(help="http: address to listen on. Without --mcp-key, anyone there can call the tools.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="http: port to listen on.")] = 8001,
    mcp_key: Annotated[
        str | None,
        typer.Option(
            envvar="UNPRM_CLIENT_MCP_KEY", help="http: bearer token that agents must send.", show_default=False
        ),
    ] = None,
) -> None:
    """A Model Context Protocol server: step scores and votes as tools for agents.

    It serves until stdin ends (stdio) or a signal comes (http).
    """
    if mcp_key == "":
        raise typer.BadParameter("it is empty", param_hint="--mcp-key")
    from unprm_client.mcp import create  # needs the package mcp, which no other command does

    async def serve() -> None:
        async with AsyncClient(url, api_key=key, timeout=timeout) as client:
            server = create(client, mcp_key)
            if transport == "stdio":
                await server.run_stdio_async()
            else:
                await server.run_streamable_http_async(host=host, port=port, stateless_http=True)

    asyncio.run(serve())


def _read(file: str, **fields: object) -> list[dict[str, Any]]:
    try:
        text = sys.stdin.read().removeprefix("\ufeff") if file == "-" else Path(file).read_text("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise typer.BadParameter(f"{file} can't be read: {error}") from None
    try:
        requests = list(_parsed(text))
    except ValueError as error:
        raise typer.BadParameter(f"{file}: {error}") from None
    if not requests:
        raise typer.BadParameter(f'{file} is empty; a request is {{"problem": …, "solutions": […]}}')
    chosen = {name: value for name, value in fields.items() if value is not None}
    return [{**request, **chosen} for request in requests]


def _parsed(text: str) -> Iterator[dict[str, Any]]:
    """One JSON object over all lines, or one per line. Raises `ValueError`."""
    try:
        whole = from_json(text)
    except ValueError:
        lines = [(number, line) for number, line in enumerate(text.splitlines(), 1) if line.strip()]
        for number, line in lines:
            try:
                yield _object(from_json(line))
            except ValueError as error:
                raise ValueError(f"line {number}: {error}") from None
    else:
        yield _object(whole)


def _object(value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"a request is a JSON object, not a {type(value).__name__}")
    return value


def _show(requests: list[dict[str, Any]], outcomes: Iterable[BaseModel | ClientError], as_json: bool) -> None:
    """Prints the outcomes, errors to stderr; the exit status is 1 if there was an error."""
    console, failed = Console(), 0
    for number, (request, outcome) in enumerate(zip(requests, outcomes, strict=True), 1):
        if isinstance(outcome, ClientError):
            failed += 1
            print(f"request {number}: {outcome}", file=sys.stderr)
        elif as_json:
            print(outcome.model_dump_json())
        else:
            _draw(console, request, outcome)
    if failed:
        raise typer.Exit(1)


def _draw(console: Console, request: dict[str, Any], outcome: BaseModel) -> None:
    threshold = request.get("threshold")
    if isinstance(outcome, ScoreResponse):
        console.print(terminal.scored(outcome, threshold))
    elif isinstance(outcome, CompareResponse):
        console.print(terminal.compared(outcome))
    elif isinstance(outcome, VoteResponse):
        fields = {name: value for name, value in request.items() if name in ScoreRequest.model_fields}
        steps = [solution.steps for solution in ScoreRequest.model_validate(fields).candidates()]
        console.print(terminal.voted(outcome, steps, threshold))


if __name__ == "__main__":
    run(app)
