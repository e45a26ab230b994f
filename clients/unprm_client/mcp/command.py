"""The command `mcp`."""

import asyncio
from enum import StrEnum
from typing import Annotated

import typer

from unprm_client.aio import AsyncClient


class Transport(StrEnum):
    """How agents reach the tools."""

    STDIO = "stdio"
    HTTP = "http"


def mcp(
    transport: Annotated[
        Transport, typer.Option(help="stdio: the agent starts this program; http: it connects to /mcp (streamable).")
    ] = Transport.STDIO,
    url: Annotated[
        str, typer.Option(envvar="UNPRM_CLIENT_URL", help="Address of the unprm server.")
    ] = "http://127.0.0.1:8000",
    key: Annotated[str | None, typer.Option(envvar="UNPRM_CLIENT_KEY", help="Its API key.", show_default=False)] = None,
    timeout: Annotated[float, typer.Option(min=0.1, help="Seconds for a call, including all its attempts.")] = 60.0,
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
    asyncio.run(_serve(transport, AsyncClient(url, api_key=key, timeout=timeout), host, port, mcp_key))


async def _serve(transport: Transport, client: AsyncClient, host: str, port: int, key: str | None) -> None:
    from unprm_client.mcp.tools import create  # needs the package mcp, which no other command does

    async with client:
        server = create(client, key)
        if transport is Transport.STDIO:
            await server.run_stdio_async()
        else:
            await server.run_streamable_http_async(host=host, port=port, stateless_http=True)
