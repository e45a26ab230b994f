"""A Model Context Protocol server: step scores and votes as tools for agents.

python -m clients.mcp --url http://127.0.0.1:8000
python -m clients.mcp --transport http --port 8080
"""

# This folder has no __init__.py: as a package named `mcp` it would hide the library that it uses wherever clients/ is
# on the path.

import asyncio
import sys
from enum import StrEnum
from typing import Annotated

try:
    import typer

    from clients.mcp.tools import create
    from unprm_client import AsyncClient
except ModuleNotFoundError as error:
    sys.exit(f"python -m clients.mcp needs {error.name}: in the repository, pip install '.[agents]'")

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


class Transport(StrEnum):
    """How agents reach the tools."""

    STDIO = "stdio"
    HTTP = "http"


@app.command(help=__doc__)
def serve(
    transport: Annotated[
        Transport, typer.Option(help="stdio: the agent starts this program; http: it connects to /mcp (streamable).")
    ] = Transport.STDIO,
    url: Annotated[
        str, typer.Option(envvar="UNPRM_CLIENT_URL", help="Address of the server of unprm.")
    ] = "http://127.0.0.1:8000",
    key: Annotated[str | None, typer.Option(envvar="UNPRM_CLIENT_KEY", help="Its API key.", show_default=False)] = None,
    timeout: Annotated[float, typer.Option(min=0.1, help="Seconds for a call, including all its attempts.")] = 60.0,
    host: Annotated[
        str, typer.Option(help="http: address to listen on. Anyone who reaches it can call the tools with the key.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="http: port to listen on.")] = 8001,
) -> None:
    """Serves until stdin ends (stdio) or a signal comes (http)."""
    asyncio.run(_serve(transport, AsyncClient(url, api_key=key, timeout=timeout), host, port))


async def _serve(transport: Transport, client: AsyncClient, host: str, port: int) -> None:
    async with client:
        server = create(client)
        if transport is Transport.STDIO:
            await server.run_stdio_async()
        else:
            await server.run_streamable_http_async(host=host, port=port, stateless_http=True)


if __name__ == "__main__":
    app()
