"""Scores and votes in a terminal.

unprm vote requests.jsonl --strategy hmr
echo '{"problem": "…", "solutions": ["…", "…"]}' | unprm score --json
"""

import asyncio
import sys
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import typer
from pydantic import TypeAdapter, ValidationError
from pydantic.fields import FieldInfo
from rich.console import Console
from rich.progress import Progress

from unprm.commands import group, run, with_options
from unprm.votes.registry import Strategy
from unprm_client import _base, terminal
from unprm_client._client import AsyncClient, Client
from unprm_client.errors import ClientError, Unauthorized
from unprm_client.settings import SUMMARIES, with_settings

app = group("Scores and votes in a terminal.")

File = Annotated[
    typer.FileText,
    typer.Argument(
        metavar="file",
        encoding="utf-8-sig",
        help="Requests in the server's format: one JSON object, or one per line; - reads stdin.",
    ),
]
_STDIN: Any = "-"
_REQUEST = TypeAdapter(dict[str, Any])
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

    def ask(self, operation: str, file: typer.FileText, **fields: object) -> None:
        """Makes the client's call `operation` for each request of a file with the given fields, and prints responses,
        and errors to stderr; the exit status is then 1."""
        given = {name: value for name, value in fields.items() if value is not None}
        requests = [request | given for request in _read(file)]
        errors = Console(stderr=True)
        hidden, failed = len(requests) == 1 or not errors.is_terminal, False
        # what is printed goes above the bar, but into a file if it is to
        bar = Progress(console=errors, disable=hidden, redirect_stdout=sys.stdout.isatty())
        with Client(self.url, api_key=self.key, timeout=self.timeout) as client, bar:
            outcomes = getattr(client, operation)(requests=requests, concurrency=self.concurrency)
            for number, outcome in enumerate(bar.track(outcomes, len(requests), description="answered"), 1):
                if isinstance(outcome, ClientError):
                    failed = True
                    hint = " (here by --key, or UNPRM_CLIENT_KEY)" if isinstance(outcome, Unauthorized) else ""
                    print(f"request {number}: {outcome}{hint}", file=sys.stderr)
                elif self.as_json:
                    print(outcome.model_dump_json())
                else:
                    Console().print(terminal.shown(outcome))
        if failed:
            raise typer.Exit(1)


@app.command()
@with_options
@with_settings(_option, *_READING, votes=False)
def score(asking: Asking, file: File = _STDIN, **settings: Any) -> None:
    """Scores the steps of solutions."""
    asking.ask("score_all", file, **settings)


@app.command()
@with_options
@with_settings(_option, *_READING)
def vote(
    asking: Asking,
    file: File = _STDIN,
    strategy: Annotated[Strategy | None, typer.Option(help=SUMMARIES, show_default="the server's")] = None,
    **settings: Any,
) -> None:
    """Votes for the best answer."""
    asking.ask("vote_all", file, strategy=strategy, **settings)


@app.command()
@with_options
@with_settings(_option, *_READING)
def compare(asking: Asking, file: File = _STDIN, **settings: Any) -> None:
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
    from unprm_client.mcp import create, serve_http  # needs the package mcp, which no other command does

    async def serve() -> None:
        async with AsyncClient(url, api_key=key, timeout=timeout) as client:
            server = create(client)
            if transport == "stdio":
                await server.run_stdio_async()
            else:
                await serve_http(server, host, port, mcp_key)

    asyncio.run(serve())


def _read(file: typer.FileText) -> list[dict[str, Any]]:
    """One JSON object over all lines, or one on each."""
    try:
        text = file.read()
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    try:
        return [_REQUEST.validate_json(text)]
    except ValidationError:
        lines = [(number, line) for number, line in enumerate(text.splitlines(), 1) if line.strip()]
    requests = []
    for number, line in lines:
        try:
            requests.append(_REQUEST.validate_json(line))
        except ValidationError as error:
            raise typer.BadParameter(f"line {number}: {error.errors()[0]['msg']}") from None
    if not requests:
        raise typer.BadParameter('the file is empty; a request is {"problem": …, "solutions": […]}')
    return requests


if __name__ == "__main__":
    run(app)
