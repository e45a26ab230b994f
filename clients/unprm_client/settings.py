"""The votes and their settings as parameters of commands and tools."""

import inspect
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from pydantic.fields import FieldInfo

from unprm.votes.registry import VOTES, VoteTerms
from unprm.wire import RiskTerms

Function = TypeVar("Function", bound=Callable[..., Any])
SUMMARIES = "; ".join(f"{name}: {vote.summary}" for name, vote in VOTES.items())
"""What each vote elects."""


def with_settings(parameter: Callable[[FieldInfo, str], tuple[Any, Any]]) -> Callable[[Function], Function]:
    """Decorates a function: in place of its `**settings` it has a keyword for each setting of any vote, and `risk`,
    with the default and annotation that `parameter` makes of the setting's field and of its description."""

    def decorate(function: Function) -> Function:
        signature = inspect.signature(function)
        plain = [each for each in signature.parameters.values() if each.kind is not each.VAR_KEYWORD]
        shown = [*plain, *parameters(parameter)]
        function.__signature__ = signature.replace(parameters=shown)  # type: ignore[attr-defined]
        function.__annotations__ |= {each.name: each.annotation for each in shown}
        del function.__annotations__["settings"]
        return function

    return decorate


def parameters(parameter: Callable[[FieldInfo, str], tuple[Any, Any]]) -> Iterator[inspect.Parameter]:
    """A keyword for each setting of any vote, and `risk`; as for `with_settings`."""
    for name, field in {**VoteTerms.model_fields, **RiskTerms.model_fields}.items():
        votes = ", ".join(vote.name for vote in VOTES.values() if name in vote.terms.model_fields)
        default, annotation = parameter(field, f"{votes or 'all votes'}: {field.description}")
        yield inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
