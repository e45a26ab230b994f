"""Routes for work are FastAPI's: what their endpoints depend on is called, whatever its order."""

import asyncio
import json
from typing import Annotated, Any

import pytest
from fastapi import APIRouter, Depends, Query
from starlette.exceptions import HTTPException

from server.app import create_app
from server.routes.route import WorkRoute
from server.settings import Settings
from tests.fake_engine import FakeEngine
from tests.server.turns import post

router = APIRouter(route_class=WorkRoute)
left: list[str] = []


async def _kept() -> Any:
    yield "kept"
    left.append("kept")


async def _never() -> None:
    raise HTTPException(403)


@router.post("/echo", status_code=201)
async def echo(word: Annotated[str, Depends(_kept)], body: dict[str, int], more: Annotated[str, Query()] = "") -> Any:
    return {"word": word, "body": body, "more": more}


@router.post("/never", dependencies=[Depends(_never)])
async def never(body: dict[str, int]) -> Any:
    return body


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [("/echo", {"a": 1}, 201), ("/echo", {"a": "x"}, 422), ("/never", {"a": 1}, 403)],
)
def test_what_an_endpoint_depends_on_is_called(path: str, body: Any, status: int) -> None:
    app = create_app(Settings(), FakeEngine())
    app.include_router(router)
    left.clear()
    sent, answer = asyncio.run(post(app, path, json.dumps(body).encode()))
    assert sent == status
    if status == 201:
        assert json.loads(answer) == {"word": "kept", "body": {"a": 1}, "more": ""}
        assert left == ["kept"]
