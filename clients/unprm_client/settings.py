"""Fields of requests, and the votes and their settings, as parameters of commands and tools."""

import inspect
from collections.abc import Callable
from typing import Any, TypeVar

from pydantic.fields import FieldInfo

from unprm.votes.registry import VOTES, VoteTerms
from unprm.wire import RiskTerms, ScoreRequest

Function = TypeVar("Function", bound=Callable[..., Any])
Parameter = Callable[[FieldInfo, str], tuple[Any, Any]]
"""Makes the default and the annotation of a parameter of a field and its description."""
SUMMARIES = "; ".join(f"{name}: {vote.summary}" for name, vote in VOTES.items())
"""What each vote elects."""
FIELDS = {name: (field, field.description or "") for name, field in ScoreRequest.model_fields.items()}
SETTINGS = {
    name: (field, f"{', '.join(v.name for v in VOTES.values() if name in v.terms.model_fields) or 'all votes'}: "
    f"{field.description}")
    for name, field in {**VoteTerms.model_fields, **RiskTerms.model_fields}.items()
}  # fmt: skip
"""Each setting of any vote, and `risk`."""


def with_settings(parameter: Parameter, *fields: str, votes: bool = True) -> Callable[[Function], Function]:
    """Gives a function, in place of `**settings`, a keyword for each of these fields and, for `votes`, of
    `SETTINGS`."""

    def decorate(function: Function) -> Function:
        signature = inspect.signature(function)
        shown = [each for each in signature.parameters.values() if each.kind is not inspect.Parameter.VAR_KEYWORD]
        chosen = {name: FIELDS[name] for name in fields} | (SETTINGS if votes else {})
        for name, (field, description) in chosen.items():
            default, annotation = parameter(field, description)
            kind = inspect.Parameter.KEYWORD_ONLY
            shown.append(inspect.Parameter(name, kind, default=default, annotation=annotation))
        function.__signature__ = signature.replace(parameters=shown)  # type: ignore[attr-defined]
        function.__annotations__ |= {parameter.name: parameter.annotation for parameter in shown}
        del function.__annotations__["settings"]
        return function

    return decorate
