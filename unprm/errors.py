"""Every error that unprm raises on purpose, also in clients. `code` is stable, and the key of the server's statuses.

A message says what was sent and what was expected, and never repeats a user's text.
"""

import logging
import threading
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Self, TypeVar

T = TypeVar("T")
logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class FieldError:
    """An invalid field: its JSON pointer and what is wrong with it."""

    __pydantic_config__: ClassVar = {"extra": "forbid"}

    pointer: str
    detail: str


class UnprmError(Exception):
    """Base of all errors of this library and its clients.

    `code`: empty where only a client can fail. Of an error that a server reported, `status`: HTTP's; `errors`: the
    offending fields. `retry_after`: seconds, if the server says when to try again.
    """

    code: str = ""
    status: int | None = None
    request_id: str | None = None
    errors: Sequence[FieldError] = ()
    retry_after: float | None = None

    @classmethod
    def saying(cls, message: str) -> Self:
        """The error in these words, without what its constructor would know."""
        return cls.__new__(cls, message)


class RequestRefused(UnprmError):
    """The request can't be answered as it stands, now or later."""


class TryAgain(UnprmError):
    """The request is valid, and may be answered later."""


class InvalidRequest(RequestRefused):
    """The request can't be answered as it stands; `pointer` is the JSON pointer of the offending field."""

    code = "invalid_request"
    pointer = ""

    def __init__(self, detail: str, pointer: str = "") -> None:
        super().__init__(detail)
        self.pointer = pointer


class NotText(InvalidRequest):
    """A part of a message that is not text where texts are read, such as an image."""


class TooManySolutions(InvalidRequest):
    """More candidates than one request may contain."""

    code = "too_many_solutions"

    def __init__(self, count: int, limit: int) -> None:
        super().__init__(f"{count} solutions were sent, the limit is {limit}", "/solutions")
        self.count, self.limit = count, limit


class Unscorable(InvalidRequest):
    """A candidate that no model can score; `index` is its index in the request."""

    def __init__(self, index: int, detail: str) -> None:
        super().__init__(f"solution {index} {detail}", f"/solutions/{index}")
        self.index = index


class BlankSolution(Unscorable):
    """A candidate whose text is empty or only white space."""

    code = "blank"

    def __init__(self, index: int) -> None:
        super().__init__(index, "is blank")


class TooManySteps(Unscorable):
    """A candidate with more steps than allowed."""

    code = "too_many_steps"

    def __init__(self, index: int, limit: int) -> None:
        super().__init__(index, f"has more than {limit} steps")


class SolutionTooLong(Unscorable):
    """A candidate that does not fit the model's window; nothing is ever truncated. If not `exact`, `tokens` is a lower
    bound: the candidate was not encoded to count them."""

    code = "solution_too_long"

    def __init__(self, index: int, tokens: int, limit: int, exact: bool = True) -> None:
        takes = f"takes {tokens} tokens" if exact else f"takes at least {tokens} tokens"
        super().__init__(index, f"with its problem {takes}, the limit is {limit}")
        self.tokens, self.limit = tokens, limit


class NoVerdict(Unscorable):
    """A candidate of which a judge did not judge all steps."""

    code = "no_verdict"

    def __init__(self, index: int, unread: int, steps: int) -> None:
        super().__init__(index, f"has no verdict of the judge on {unread} of its {steps} steps")


class UnknownModel(InvalidRequest):
    """A model that is not served."""

    code = "unknown_model"

    def __init__(self, served: Sequence[str]) -> None:
        super().__init__(f"no served model has the name that was sent; expected one of {', '.join(served)}", "/model")


class NoModel(InvalidRequest):
    """A request that needs a model's scores, where no model is served."""

    def __init__(self) -> None:
        super().__init__("no model is served here: send step_scores with every solution, or vote by majority")


class NoJudge(InvalidRequest):
    """A vote by a comparison, where no model is there to compare."""

    def __init__(self) -> None:
        super().__init__("select needs a language model that compares the answers: --judge-url and --judge-model")


class NoAnswer(InvalidRequest):
    """A vote in which no candidate has an answer."""

    code = "no_answer"

    def __init__(self, count: int) -> None:
        super().__init__(
            f"none of the {count} solutions has an answer to vote for: end them with \\boxed{{…}} or “The answer is …”,"
            " or set `extraction`, which says where answers are looked for; texts without answers, such as code, are"
            " elected by a reward: take a vote like `prm`, and send the problem or step_scores",
            "/solutions",
        )


class UpstreamRefused(RequestRefused):
    """The gateway's upstream rejects the request, for instance an unknown model or a context that is too long.

    `status`: the response's; `fields`: `code`, `type` and `param` of the upstream's error, as far as it has them.
    """

    code = "upstream_refused"

    def __init__(self, detail: str, status: int = 400, fields: Mapping[str, str] | None = None) -> None:
        super().__init__(detail)
        self.status, self.fields = status, fields or {}


class UpstreamFailed(TryAgain):
    """The gateway's upstream did not answer, or not as OpenAI's API does."""

    code = "upstream_failed"


class UpstreamUnavailable(UpstreamFailed):
    """The gateway's upstream says that it can't answer now (503)."""

    code = "upstream_unavailable"


class Overloaded(TryAgain):
    """Too much is waiting here; nothing of the request was run. `detail` says what waits."""

    code = "overloaded"

    def __init__(self, detail: str, retry_after: float) -> None:
        super().__init__(f"{detail}; try again in {retry_after:.0f} s")
        self.retry_after = retry_after


class QuotaExceeded(Overloaded):
    """The key has used up its tokens for now."""

    code = "quota_exceeded"


class UpstreamBusy(Overloaded):
    """The gateway's upstream refuses more requests for now (429)."""

    code = "upstream_busy"


class DeadlineExceeded(UnprmError):
    """The request's time ran out before its answer was ready. `unheard`: the upstreams that were asked and had sent
    nothing."""

    code = "deadline_exceeded"

    def __init__(self, seconds: float, unheard: Iterable[str] = ()) -> None:
        silent = "".join(f"; the upstream {name!r} had not answered" for name in sorted(unheard))
        super().__init__(
            f"the request was not answered within {seconds:g} s{silent}; the server's limit is --max-request-seconds, "
            "the gateway's --gateway-seconds, of which a tenth is kept for the vote"
        )
        self.seconds = seconds


class ShuttingDown(TryAgain):
    """The server is draining and accepts no new work."""

    code = "shutting_down"

    def __init__(self) -> None:
        super().__init__("the server is shutting down and accepts no new requests")


class ModelUnavailable(TryAgain):
    """The model is not loaded, or failed on this request."""

    code = "model_unavailable"


class ModelUnreachable(ModelUnavailable):
    """The model runs in another program, which does not answer now and may come back."""


class ModelBusy(ModelUnreachable):
    """The model runs in another program, which can be reached and refuses this request for its load."""


class ModelInvalid(UnprmError):
    """A model's files can't be served: something is missing or does not fit together."""

    code = "model_invalid"


class RecordInvalid(UnprmError):
    """A training record that can't be used; `line` is 1-based, 0 if it is about the whole file."""

    code = "record_invalid"

    def __init__(self, path: str, line: int, reason: str) -> None:
        super().__init__(f"{path}, line {line}: {reason}" if line else f"{path}: {reason}")
        self.path, self.line = path, line


class RecordsInvalid(RecordInvalid):
    """Several training records that can't be used: `count`, of which `shown` are named. `path` and `line`: of the
    first."""

    def __init__(self, shown: Sequence[RecordInvalid], count: int) -> None:
        more = [f"and {count - len(shown)} more"] if count > len(shown) else []
        UnprmError.__init__(self, "\n".join([f"{count} bad records:", *map(str, shown), *more]))
        self.path, self.line, self.count = shown[0].path, shown[0].line, count


class OutputMismatch(UnprmError):
    """An output that can't be continued: another run is writing it, or it was written with another configuration."""

    code = "output_mismatch"


class SamplerFailed(UnprmError):
    """Completions could not be obtained, after all retries."""

    code = "sampler_failed"


class _Failures:
    """The number of failures since the start. Thread-safe."""

    def __init__(self) -> None:
        self.count = 0
        self._lock = threading.Lock()

    def add(self) -> None:
        with self._lock:
            self.count += 1


FAILURES = _Failures()
"""Of this process."""


def attempt(read: Callable[[], T], otherwise: T) -> T:
    """The result of reading a text; `otherwise` if the reader fails, which is counted and logged by the error's type
    and line, since its message may repeat the text. An `UnprmError` passes."""
    try:
        return read()
    except UnprmError:
        raise
    except Exception as error:
        FAILURES.add()
        frame = traceback.extract_tb(error.__traceback__)[-1]
        logger.error(
            "a candidate could not be read: %s in %s, line %s of %s",
            type(error).__name__,
            frame.name,
            frame.lineno,
            frame.filename,
        )
        return otherwise
