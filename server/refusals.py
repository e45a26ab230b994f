"""The response to a request that is refused or fails, in the dialect of the API that was called."""

from http import HTTPStatus

from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Match
from starlette.types import Scope

from unprm.fields import unknown
from unprm.votes.registry import VOTES

from .admission import context_of
from .errors import Dialect, problem

ANTHROPIC = "/v1/messages"
"""Path of Anthropic's API; others below `/v1` are of OpenAI's."""
GATEWAY = {
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/responses",
    ANTHROPIC,
    f"{ANTHROPIC}/count_tokens",
}
"""Paths that exist if there is an upstream."""


def respond(error: Exception, scope: Scope) -> Response:
    """The response to an error of a request; its code is noted in the request's context."""
    context, path = context_of(scope), scope["path"]
    if isinstance(error, HTTPException) and error.status_code in (404, 405):
        error = _elsewhere(error, scope)
    context.note(error)
    return problem(error, context.request_id, _dialect(path))


def _elsewhere(error: HTTPException, scope: Scope) -> HTTPException:
    """The error of a path or a method that is not served, saying which are."""
    path = scope["path"]
    if error.status_code == 405:
        routes = [route for route in scope["app"].routes if route.matches(scope)[0] is not Match.NONE]
        allowed = ", ".join(sorted({method for route in routes for method in getattr(route, "methods", ())}))
        return HTTPException(405, f"expected {allowed}, got {scope['method']}", {"Allow": allowed})
    if path.startswith("/vote/"):
        votes = [*VOTES, "compare"]
        return HTTPException(404, f"what follows /vote/ {unknown(path.removeprefix('/vote/'), votes, 'a vote')}")
    settings = scope["app"].state.service.settings
    if path in GATEWAY and not settings.upstream_url:
        return HTTPException(404, f"{path} needs a model to sample from: start the server with --upstream-url")
    if path == "/feedback" and settings.journal is None:
        return HTTPException(
            404, "feedback goes to the journal, and there is none: start the server with --journal FILE"
        )
    if f"{path}/".startswith("/admin/models/") and settings.admin_key is None:
        return HTTPException(404, "/admin/models needs a key of its own: start the server with --admin-key")
    if error.detail == HTTPStatus.NOT_FOUND.phrase:
        return HTTPException(404, "nothing is served at this path; /docs lists what is")
    return error


def _dialect(path: str) -> Dialect:
    if path == ANTHROPIC or path.startswith(f"{ANTHROPIC}/"):
        return "anthropic"
    return "openai" if path.startswith("/v1/") else "unprm"
