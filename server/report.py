"""What a run of training left in a directory, as data for the page that shows it: `python -m server --report DIR`."""

import asyncio
import json
from pathlib import Path

from fastapi import APIRouter, Request
from fastapi.responses import FileResponse, Response
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
    async def file(path: str, request: Request, id: str | None = None) -> Response:
        """A file of the run, never one that a link leads to outside of it; with `id` that record of it alone."""
        if Path(path).suffix not in _SHOWN:
            raise HTTPException(404)
        response = await files.get_response(path, request.scope)
        if id is not None and isinstance(response, FileResponse):
            response = await asyncio.to_thread(_record, Path(response.path), id)
        response.headers.update(HEADERS)
        return response

    return run


def _listed(directory: Path) -> list[str]:
    found = (
        path for path in directory.rglob("*") if path.suffix in _SHOWN and path.is_file() and not path.is_symlink()
    )
    return sorted(path.relative_to(directory).as_posix() for path in found)


def _record(path: Path, name: str) -> Response:
    """The line of the record with this id, as it stands; a run that goes on may not have ended its last line."""
    with path.open("rb") as lines:
        for line in lines:
            try:
                record = json.loads(line)
            except ValueError:
                continue
            if isinstance(record, dict) and record.get("id") == name:
                return Response(line, media_type="application/json")
    raise HTTPException(404)
