"""The endpoints of reranking clients: `/rerank` and `/score`, also in TEI's form, and of prompts in SGLang's.

To such a client a problem is the query, its solutions are the documents, rewards the relevance; fields that only a text
retriever could use are ignored. Of the forms that an address takes, a body's fields tell which it is in.
"""

from collections.abc import Sequence
from functools import partial
from typing import Annotated

from fastapi import APIRouter
from pydantic import AliasChoices, BaseModel, Discriminator, Field, Tag

from unprm.calibration import log_odds
from unprm.errors import InvalidRequest
from unprm.types import Format
from unprm.wire import MAX_SOLUTIONS, FreeText, ModelName, Request, ScoreRequest, Text

from ..admission import Context, TheContext
from ..service import Service, TheService
from . import votes
from .pooling import Json, LabelsRequest, listed, new_id, score_labels, usage_of
from .route import WorkRoute

router = APIRouter(route_class=WorkRoute)


def _by_field(field: str) -> Discriminator:
    return Discriminator(lambda body: "has" if isinstance(body, dict) and body.get(field) is not None else "lacks")


class _Document(BaseModel):
    text: FreeText


_Texts = Annotated[list[Text], Field(fail_fast=True)]
_Documents = Annotated[list[FreeText | _Document], Field(min_length=1, max_length=MAX_SOLUTIONS)]


class RerankRequest(Request):
    """Solutions to be ordered by their rewards."""

    model: ModelName | None = None
    query: Text
    documents: _Documents
    top_n: int | None = Field(None, ge=1)
    return_documents: bool = True


class PairsRequest(Request):
    """A problem and its solutions, or as many problems as solutions, which are then paired in order."""

    model: ModelName | None = None
    problems: Text | _Texts = Field(validation_alias=AliasChoices("text_1", "queries"))
    solutions: FreeText | _Documents = Field(validation_alias=AliasChoices("text_2", "documents", "items"))


class TextsRequest(RerankRequest):
    """TEI's form; `raw_scores`: whether scores are log-odds."""

    documents: _Documents = Field(validation_alias="texts")
    raw_scores: bool = False
    return_text: bool = False


_Rerank = Annotated[Annotated[TextsRequest, Tag("has")] | Annotated[RerankRequest, Tag("lacks")], _by_field("texts")]


_Score = Annotated[Annotated[LabelsRequest, Tag("has")] | Annotated[PairsRequest, Tag("lacks")], _by_field("query")]


async def rerank(service: TheService, request: _Rerank, context: TheContext) -> Json | list[Json]:
    """The solutions with the highest rewards, best first; of equal ones in the order of the request."""
    texts = _texts(request.documents)
    model, rewards = await _rewards(service, request.model, [request.query] * len(texts), texts, context)
    best = sorted(range(len(texts)), key=lambda index: -rewards[index])[: request.top_n]
    if isinstance(request, TextsRequest):
        scores = list(map(log_odds, rewards)) if request.raw_scores else rewards
        return [
            {"index": index, "score": scores[index]} | ({"text": texts[index]} if request.return_text else {})
            for index in best
        ]
    results = [
        {
            "index": index,
            "relevance_score": rewards[index],
            "document": {"text": texts[index]} if request.return_documents else None,
        }
        for index in best
    ]
    return {"id": new_id("rerank"), "model": model, "results": results, "usage": usage_of(context)}


async def pairs(service: TheService, request: _Score, context: TheContext) -> Json:
    """Scores pairs of problem and solution. Raises `InvalidRequest` unless there is one problem, or one for each
    solution."""
    if isinstance(request, LabelsRequest):
        return await score_labels(service, request, context)
    texts = _texts([request.solutions] if isinstance(request.solutions, str) else request.solutions)
    problems = [request.problems] if isinstance(request.problems, str) else request.problems
    if len(problems) not in (1, len(texts)):
        raise InvalidRequest(f"{len(problems)} problems were sent for {len(texts)} solutions", "/text_1")
    each = problems * (len(texts) // len(problems))
    model, rewards = await _rewards(service, request.model, each, texts, context)
    return listed("score", model, [{"object": "score", "score": reward} for reward in rewards], context)


for _path in ("/rerank", "/v1/rerank", "/v2/rerank"):
    router.add_api_route(_path, rerank, methods=["POST"], include_in_schema=False)
for _path in ("/score", "/v1/score"):
    router.add_api_route(_path, pairs, methods=["POST"], include_in_schema=False)


async def _rewards(
    service: Service, model: str | None, problems: Sequence[str], texts: Sequence[str], context: Context
) -> tuple[str, list[float]]:
    """The model's name, and a reward for each text. Raises `Unscorable` if one can't be scored."""
    with service.models.chosen(model) as (chosen,):
        reading = partial(_to_rank, problems, texts, model, chosen.engine.format, service.settings.max_steps)
    request = await service.read(context, reading)
    scored = await votes.score(service, request, context)
    return scored.model, [each.reward or 0.0 for each in scored.solutions]


def _to_rank(
    problems: Sequence[str], texts: Sequence[str], model: str | None, format: Format, max_steps: int
) -> ScoreRequest:
    """The request to score these texts, at the family's separators where they have them."""
    steps = [format.steps(text, max_steps) for text in texts]
    solutions = [text if parts is None else parts or "" for text, parts in zip(texts, steps, strict=True)]
    sent = {"problems": problems, "solutions": solutions, "model": model, "on_invalid": "refuse"}
    return ScoreRequest.model_validate(sent)


def _texts(documents: Sequence[str | _Document]) -> list[str]:
    return [each if isinstance(each, str) else each.text for each in documents]
