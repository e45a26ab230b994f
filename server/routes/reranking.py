"""The addresses of reranking clients: a problem is the query, its solutions are the documents, rewards the relevance.

`/rerank` answers as Cohere, Jina and vLLM do, `/score` as vLLM; both also below `/v1` and `/v2`. Fields that only a
text retriever could use are ignored.
"""

from collections.abc import Sequence
from typing import Annotated

from fastapi import APIRouter
from pydantic import AliasChoices, BaseModel, ConfigDict, Field

from unprm.errors import InvalidRequest
from unprm.wire import MAX_SOLUTIONS, FreeText, ModelName, ScoreRequest, Text

from .. import voting
from ..context import Context, TheContext
from ..service import Service, TheService
from .listing import ListResponse, new_id, usage
from .route import WorkRoute

router = APIRouter(route_class=WorkRoute)


class _Body(BaseModel):
    model_config = ConfigDict(extra="ignore")


class _Document(_Body):
    text: FreeText


_Documents = Annotated[list[FreeText | _Document], Field(min_length=1, max_length=MAX_SOLUTIONS)]


class RerankRequest(_Body):
    """Solutions to be ordered by their rewards."""

    model: ModelName | None = None
    query: Text
    documents: _Documents
    top_n: int | None = Field(None, ge=1)
    return_documents: bool = True


class PairsRequest(_Body):
    """A problem and its solutions, or as many problems as solutions, which are then paired in order."""

    model: ModelName | None = None
    problems: Text | list[Text] = Field(validation_alias=AliasChoices("text_1", "queries"))
    solutions: FreeText | _Documents = Field(validation_alias=AliasChoices("text_2", "documents", "items"))


class RankedDocument(BaseModel):
    """A solution with its reward in [0, 1]; `index`: its place in the request."""

    index: int
    relevance_score: float
    document: dict[str, str] | None


class RerankResponse(BaseModel):
    """The solutions with the highest rewards, best first; of equal ones in the order of the request."""

    id: str
    model: str
    results: list[RankedDocument]
    usage: dict[str, int]


async def rerank(service: TheService, request: RerankRequest, context: TheContext) -> RerankResponse:
    """Orders solutions by their rewards."""
    texts = _texts(request.documents)
    model, rewards = await _rewards(service, request.model, request.query, texts, context)
    best = sorted(range(len(texts)), key=lambda index: -rewards[index])[: request.top_n]
    results = [
        RankedDocument(
            index=index,
            relevance_score=rewards[index],
            document={"text": texts[index]} if request.return_documents else None,
        )
        for index in best
    ]
    return RerankResponse(id=new_id("rerank"), model=model, results=results, usage=usage(context))


async def pairs(service: TheService, request: PairsRequest, context: TheContext) -> ListResponse:
    """Scores pairs of problem and solution. Raises `InvalidRequest` unless there is one problem, or one for each
    solution."""
    solutions = request.solutions
    texts = _texts([solutions] if isinstance(solutions, str) else solutions)
    problems = [request.problems] if isinstance(request.problems, str) else request.problems
    if len(problems) not in (1, len(texts)):
        raise InvalidRequest(f"{len(problems)} problems were sent for {len(texts)} solutions", "/text_1")
    by_problem: dict[str, list[int]] = {}
    for index in range(len(texts)):
        by_problem.setdefault(problems[index % len(problems)], []).append(index)
    rewards = [0.0] * len(texts)
    model = ""
    for problem, indices in by_problem.items():
        model, found = await _rewards(service, request.model, problem, [texts[index] for index in indices], context)
        for index, reward in zip(indices, found, strict=True):
            rewards[index] = reward
    data = [{"index": index, "object": "score", "score": reward} for index, reward in enumerate(rewards)]
    return ListResponse.of("score", model, data, context)


for _version in ("", "/v1", "/v2"):
    router.add_api_route(f"{_version}/rerank", rerank, methods=["POST"], include_in_schema=False)
for _version in ("", "/v1"):
    router.add_api_route(f"{_version}/score", pairs, methods=["POST"], include_in_schema=False)


async def _rewards(
    service: Service, model: str | None, problem: str, texts: Sequence[str], context: Context
) -> tuple[str, list[float]]:
    """The model's name, and a reward for each text. Raises `Unscorable` if one can't be scored."""
    sent = {"problem": problem, "solutions": texts, "model": model, "on_invalid": "refuse"}
    request = ScoreRequest.model_validate(sent)
    before = context.usage
    scored = await voting.score_steps(service, request, context)
    context.usage = before + context.usage
    return scored.model, [each.reward or 0.0 for each in scored.solutions]


def _texts(documents: Sequence[str | _Document]) -> list[str]:
    return [each if isinstance(each, str) else each.text for each in documents]
