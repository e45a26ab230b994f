"""Serves the output directory of a training run to the page that shows it: `unprm serve --report DIR`."""

import asyncio
import json
from pathlib import Path

from fastapi import APIRouter, Request
from fastapi.responses import FileResponse, Response
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.staticfiles import StaticFiles

from . import HEADERS

_SHOWN = frozenset({".json", ".jsonl", ".png"})
"""File extensions of results, records and figures; weights and everything else are not served."""


class Listing(BaseModel):
    """The run's name, None if none is shown, and its files as paths below its directory."""

    name: str | None
    files: list[str]


def router(directory: Path | None) -> APIRouter:
    """Routes that list and serve the directory's records and figures; like all of the deployment, they need a key."""
    run = APIRouter(include_in_schema=False)
    if directory is None:

        @run.get("/report")
        async def nothing() -> Listing:
            """Reports that no run is shown."""
            return Listing(name=None, files=[])

        return run
    files = StaticFiles(directory=directory)

    @run.get("/report")
    async def listing() -> Listing:
        """Lists the files there are now: the run may still be going on."""
        return Listing(name=directory.resolve().name, files=await asyncio.to_thread(_listed, directory))

    @run.get("/report/{path:path}")
    async def file(path: str, request: Request, id: str | None = None) -> Response:
        """A file of the run, never one outside its directory through a link; with `id`, only that record of it."""
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
    """The line of the record with this id, unchanged; while a run goes on, its last line may be incomplete."""
    with path.open("rb") as lines:
        for line in lines:
            try:
                record = json.loads(line)
            except ValueError:
                continue
            if isinstance(record, dict) and record.get("id") == name:
                return Response(line, media_type="application/json")
    raise HTTPException(404)
