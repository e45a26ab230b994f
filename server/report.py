"""What a run of training left in a directory, as data for the page that shows it: `python -m server --report DIR`."""

import asyncio
from pathlib import Path

from fastapi import APIRouter, Request
from fastapi.responses import Response
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.staticfiles import StaticFiles

from server.page import HEADERS

_SHOWN = frozenset({".json", ".jsonl", ".png"})
"""Endings of results, records and figures; weights and everything else stay where they are."""


class Listing(BaseModel):
    """The run's name, None if none is shown, and its files as paths below its directory."""

    name: str | None
    files: list[str]


def router(directory: Path | None) -> APIRouter:
    """Lists and serves the directory's records and figures; they need a key as all of the deployment does."""
    run = APIRouter(include_in_schema=False)
    if directory is None:

        @run.get("/report")
        async def nothing() -> Listing:
            """Tells that no run is shown."""
            return Listing(name=None, files=[])

        return run
    files = StaticFiles(directory=directory)

    @run.get("/report")
    async def listing() -> Listing:
        """Tells what there is, as it is now: a run may still be going on."""
        return Listing(name=directory.resolve().name, files=await asyncio.to_thread(_listed, directory))

    @run.get("/report/{path:path}")
    async def file(path: str, request: Request) -> Response:
        """A file of the run, never one that a link leads to outside of it."""
        if Path(path).suffix not in _SHOWN:
            raise HTTPException(404)
        response = await files.get_response(path, request.scope)
        response.headers.update(HEADERS)
        return response

    return run


def _listed(directory: Path) -> list[str]:
    found = (
        path for path in directory.rglob("*") if path.suffix in _SHOWN and path.is_file() and not path.is_symlink()
    )
    return sorted(path.relative_to(directory).as_posix() for path in found)
