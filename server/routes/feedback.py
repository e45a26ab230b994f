"""The route that says, later, whether an elected answer was right. It exists where there is a journal to note it in."""

import re
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

_CALL = re.compile(r"([^\s()]+)\((.*)\)")
_PREFIX = re.compile("^(chatcmpl-|msg_|resp_)")
"""Of the id of an answer of the gateway, before the id of the request."""

router = APIRouter(route_class=WorkRoute)


@router.post("/feedback", **describe("feedback"))
async def feedback(service: TheService, request: FeedbackRequest, lease: TheLease) -> FeedbackResponse:
    """Notes whether the answer of an earlier vote was right; a later verdict replaces an earlier one. Only the key that
    asked for the vote may judge it, as long as the journal has it."""
    assert service.journal is not None, "without a journal there is no such route"
    ids = dict.fromkeys((request.request_id, _PREFIX.sub("", request.request_id)))
    found = next(filter(None, [await service.journal.find(each, lease.caller) for each in ids]), None)
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
    if kind == "tool_call":
        return await lease.read(lambda: _calls(elected) == _calls(right))
    if kind == "json":
        return await lease.read(partial(_equal_json, elected, right))
    if (key := KINDS[kind].key(elected)) is not None:
        return key == KINDS[kind].key(right)
    return await RequestScorer(service, (), lease).finish(_equal_formal(Pair(elected, [right])))


def _calls(text: str) -> set[str]:
    """Tool calls with their arguments in canonical JSON: of a line for each, `name({…})`, or as an API has them."""
    value = json_value(text)
    if isinstance(value, dict | list):
        sent = value if isinstance(value, list) else [value]
        made = [each.get("function", each) for each in sent if isinstance(each, dict)]
        pairs = [(call.get("name"), call.get("arguments")) for call in made if isinstance(call, dict)]
        read = [(name, json_value(given) if isinstance(given, str) else given) for name, given in pairs]
    else:
        found = [_CALL.fullmatch(line.strip()) or [line, line.strip(), "null"] for line in text.strip().splitlines()]
        read = [(call[1], json_value(call[2])) for call in found]
    return {f"{name}({canonical_json(given)})" for name, given in read}


def _equal_formal(pair: Pair) -> Work[bool]:
    (match,) = yield MatchPairs([pair])
    correct: bool = match.correct
    return correct


def _equal_json(elected: str, right: str) -> bool:
    """Whether an answer in canonical JSON equals the right one, which may be a text that isn't JSON: a label."""
    value = json_value(right)
    return elected in (right, canonical_json(right), canonical_json(right if value is None else value))
