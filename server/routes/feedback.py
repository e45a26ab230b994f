"""The route that says, later, whether an elected answer was right. It exists where there is a journal to note it in."""

from functools import partial

from fastapi import APIRouter

from unprm.answers.equivalence import Pair
from unprm.answers.kinds import KINDS, canonical_json, json_value
from unprm.errors import InvalidRequest
from unprm.pipeline import MatchPairs, Work
from unprm.types import ComparedAs
from unprm.wire import FeedbackRequest, FeedbackResponse

from ..lease import Lease, TheLease
from ..scoring import RequestScorer
from ..service import Service, TheService
from .openapi import describe
from .route import WorkRoute

router = APIRouter(route_class=WorkRoute)


@router.post("/feedback", **describe("feedback"))
async def feedback(service: TheService, request: FeedbackRequest, lease: TheLease) -> FeedbackResponse:
    """Notes whether the answer of an earlier vote was right; a later verdict replaces an earlier one. Only the key that
    asked for the vote may judge it, as long as the journal has it."""
    assert service.journal is not None, "without a journal there is no such route"
    found = await service.journal.find(request.request_id, lease.caller)
    if found is None:
        raise InvalidRequest("the journal has no vote of this request_id by your key", "/request_id")
    number, election = found
    correct = request.correct
    if correct is None:
        if election["answer"] is None:
            raise InvalidRequest("the journal keeps no answers here: send correct in place of answer", "/answer")
        correct = await _equal(service, lease, election["compared_as"], election["answer"], request.answer or "")
    await service.journal.judge(number, correct)
    return FeedbackResponse(correct=correct, accept=election["accept"])


async def _equal(service: Service, lease: Lease, kind: ComparedAs, elected: str, right: str) -> bool:
    """Whether an elected answer equals the right one, both compared as that kind is."""
    if kind == "json":
        return await lease.read(partial(_equal_json, elected, right))
    if (key := KINDS[kind].key(elected)) is not None:
        return key == KINDS[kind].key(right)
    return await RequestScorer(service, (), lease).finish(_equal_formal(Pair(elected, [right])))


def _equal_formal(pair: Pair) -> Work[bool]:
    (match,) = yield MatchPairs([pair])
    correct: bool = match.correct
    return correct


def _equal_json(elected: str, right: str) -> bool:
    """Whether an answer in canonical JSON equals the right one, which may be a text that isn't JSON: a label."""
    value = json_value(right)
    return elected in (right, canonical_json(right), canonical_json(right if value is None else value))
