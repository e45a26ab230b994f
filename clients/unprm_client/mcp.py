"""The client's operations as tools of the Model Context Protocol, `unprm mcp`: each is one call of the server.

Their descriptions are for the model that chooses among them.
"""

import hmac
import inspect
from typing import Annotated, Any

from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import CallToolResult, InputRequiredResult, ToolAnnotations
from pydantic import Field, ValidationError
from pydantic.fields import FieldInfo
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from unprm.types import DEFAULT_STRATEGY
from unprm.validation_messages import unknown, validation_errors
from unprm.version import version
from unprm.votes.registry import VOTES, Strategy
from unprm.wire import MAX_SOLUTIONS, RiskTerms, Text
from unprm_client import AsyncClient, ClientError, CompareResponse, ScoreResponse, VoteResponse
from unprm_client.settings import SUMMARIES, with_settings

INSTRUCTIONS = """\
Checks solutions of mathematical problems with a process reward model that scores every step.
Have one solution and doubt it: score_steps, and look at first_error.
Have several and need one answer: vote.
If a result's `demonstration` has `in_domain` false, no model has scored: only equations in the steps were checked.
The tools judge what they are given; they solve nothing themselves."""

_READING = ("aggregate", "split", "extraction")
"""Fields of a request that say how its solutions are read."""
_READ_ONLY = ToolAnnotations(read_only_hint=True, idempotent_hint=True, open_world_hint=False)

Problem = Annotated[Text, Field(description="The whole text of the problem, as it was given to the solver.")]
Solutions = Annotated[
    list[str | Annotated[list[Text], Field(min_length=1)]],
    Field(
        min_length=1,
        max_length=MAX_SOLUTIONS,
        description="Complete solutions, each a text with a blank line between steps, or a list of its steps. "
        "A solution states its answer at its end, best as \\boxed{…}.",
    ),
]
Vote = Annotated[
    Strategy | None,
    Field(description=f"Leave it out if in doubt: the server knows which vote fits its model. {SUMMARIES}."),
]


def _argument(field: FieldInfo, description: str) -> tuple[Any, Any]:
    hint: Any = field.annotation
    return field.default, Annotated[hint, *field.metadata, Field(description=description)]


def create(client: AsyncClient) -> MCPServer:

    @with_settings(_argument, "aggregate", "threshold", "split", "extraction", votes=False)
    async def score_steps(problem: Problem, solutions: Solutions, **settings: Any) -> ScoreResponse:
        """Finds where a solution goes wrong. Use it to check a solution before you rely on it, or to know which step to
        redo. It returns, for each solution: `step_scores`, one probability in [0, 1] for each step that all is right so
        far; `first_error`, the index of the first wrong step, counted from 0, or null if none is; `reward`, one number
        for the whole solution; `answer`, the answer found in it; `unscored`, why a solution has no scores. A
        `reward` of null beside step scores means: only equations were checked, 0 marks a false one."""
        return await client.score_steps(problem, solutions, **settings)

    @with_settings(_argument, *_READING)
    async def vote(problem: Problem, solutions: Solutions, strategy: Vote = None, **settings: Any) -> VoteResponse:
        """Elects the best answer among several solutions of one problem. Use it when you have two or more attempts and
        need one answer; equal answers that are written differently count together. It returns: `answer`, the elected
        one; `solution_index`, the solution to show for it; `margin`, how far it leads, and `tie`, if it does not;
        `candidates`, all answers with their counts and rewards, the best first; `without_answer_count`, in how many
        solutions no answer could be read; `why_majority`, if rewards could not be used; `supported`, whether a solution
        with the answer has no wrong step. `supported` false, a small margin, a tie, or
        `only_answer` as `decided_by` (the others have none) means: make more attempts and vote again. With `risk`,
        `accept` says whether the answer can be relied on."""
        accepted = {*_READING, *VOTES[strategy or DEFAULT_STRATEGY].terms.model_fields, *RiskTerms.model_fields}
        terms = {name: value for name, value in settings.items() if name in accepted}
        return await client.vote(problem, solutions, strategy, **terms)

    @with_settings(_argument, *_READING)
    async def compare_votes(problem: Problem, solutions: Solutions, **settings: Any) -> CompareResponse:
        """Takes all votes on several solutions of one problem at once. Use it to see how safe an answer is; for
        the answer alone, `vote` is enough. It returns: `agree`, whether all votes elect the same answer, and
        `strategies`, the outcome of each."""
        return await client.compare(problem, solutions, **settings)

    server = _Server(
        "unprm",
        title="Step scores and votes for solutions",
        instructions=INSTRUCTIONS,
        version=version(),
        log_level="WARNING",
    )
    for tool in (score_steps, vote, compare_votes):
        server.add_tool(tool, description=inspect.getdoc(tool), annotations=_READ_ONLY)
    return server


class _Server(MCPServer):
    """Reports errors in sentences that a model can act on. Invalid arguments are reported as the unprm server reports
    invalid fields, unknown ones too: a model that misspells one would believe that it took effect."""

    async def call_tool(
        self, name: str, arguments: dict[str, Any], context: Context[Any, Any] | None = None
    ) -> CallToolResult | InputRequiredResult:
        known = {tool.name: list(tool.input_schema["properties"]) for tool in await self.list_tools()}
        for each in sorted(set(arguments) - set(known.get(name, arguments))):
            raise ToolError(f"{each} {unknown(each, known[name], f'an argument of {name}')}")
        try:
            return await super().call_tool(name, arguments, context)
        except ToolError as error:
            match error.__cause__:
                case ValidationError() as invalid:
                    wrong = [f"{error.pointer[1:]}: {error.detail}" for error in validation_errors(invalid, arguments)]
                    raise ToolError(f"The arguments of {name} don't fit: {'; '.join(wrong)}") from None
                case ClientError() as failed:
                    raise ToolError(f"Error executing tool {name}: {failed}") from failed
            raise


async def serve_http(server: MCPServer, host: str, port: int, key: str | None) -> None:
    """Serves over streamable HTTP until a signal comes. `key`: bearer token that agents must send."""
    import uvicorn  # comes with mcp, which is to be named where both are missing

    app: ASGIApp = server.streamable_http_app(host=host, stateless_http=True)
    await uvicorn.Server(
        uvicorn.Config(app if key is None else _Bearer(app, key), host=host, port=port, log_level="warning")
    ).serve()


class _Bearer:
    """Answers 401 unless the key is sent."""

    def __init__(self, app: ASGIApp, key: str) -> None:
        self._app = app
        self._expected = f"Bearer {key}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        sent = dict(scope.get("headers", ())).get(b"authorization", b"")
        if scope["type"] == "http" and not hmac.compare_digest(sent, self._expected):
            words = "send the key as `Authorization: Bearer KEY`"
            return await PlainTextResponse(words, 401, {"WWW-Authenticate": "Bearer"})(scope, receive, send)
        await self._app(scope, receive, send)
