"""The web page: its files, with headers that forbid inline code and anything from other sites."""

from pathlib import Path
from typing import Final

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response
from starlette.staticfiles import StaticFiles

from unprm.votes.registry import REWARD_STRATEGIES, VOTES

BELOW: Final = "/page/"
"""Prefix of the paths of the page's files; like the page itself, they are the same for everybody and need no key."""

_POLICY = {
    "default-src": "'none'",
    "script-src": "'self'",
    "style-src": "'self'",
    "font-src": "'self'",
    "img-src": "'self' data:",
    "connect-src": "'self'",
    "base-uri": "'none'",
    "form-action": "'none'",
    "frame-ancestors": "'none'",
}
HEADERS = {
    "Content-Security-Policy": "; ".join(f"{name} {sources}" for name, sources in _POLICY.items()),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    # browsers revalidate their copies, so that no page runs with another version's scripts
    "Cache-Control": "no-cache",
}

_FILES = StaticFiles(directory=Path(__file__).parent / "files")
_SWAGGER = StaticFiles(packages=[("fastapi_swagger", "resources")])
_OF_SWAGGER = {"swagger-ui-bundle.js", "swagger-ui.css"}
"""Files of the page at /docs that come from the package `fastapi_swagger`."""

_PAGES = {"/": "index.html", "/docs": "docs.html"}

router = APIRouter(include_in_schema=False)


@router.api_route(BELOW + "strategies.json", methods=["GET", "HEAD"])
async def strategies() -> Response:
    """The votes that need answers and rewards alone, which the page shows: what it says of them."""
    texts = {
        name: {
            "title": vote.title,
            "score": vote.score_name,
            "decided_by": vote.decided_by,
            "why_frequency": vote.why_frequency,
            "why_reward": vote.why_reward,
        }
        for name, vote in VOTES.items()
        if name in REWARD_STRATEGIES
    }
    return JSONResponse(texts, headers=HEADERS)


@router.api_route("/", methods=["GET", "HEAD"])
@router.api_route("/docs", methods=["GET", "HEAD"])
@router.api_route(BELOW + "{path:path}", methods=["GET", "HEAD"])
async def file(request: Request) -> Response:
    """The page that shows step scores and votes, that of the API documentation, or a file of theirs."""
    path = _PAGES.get(request.scope["path"]) or request.path_params["path"]
    files = _SWAGGER if path in _OF_SWAGGER else _FILES
    response = await files.get_response(path, request.scope)
    response.headers.update(HEADERS)
    return response
