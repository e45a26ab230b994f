"""Command-line options that are declared once, as the fields of a dataclass.

A field `Annotated` with a `typer.Option` is an option. A command decorated with `with_options` can take such a
dataclass as a parameter, or only those of a stage's settings that were given on the command line:

    @app.command()
    @with_options
    def train(base: str, source: SamplerOptions, given: Annotated[Given, TrainSettings]) -> None: ...
"""

import functools
import inspect
from collections.abc import Callable, Iterator
from dataclasses import MISSING, Field, fields, is_dataclass
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from typer.models import OptionInfo

Given = dict[str, Any]
"""The settings given on the command line, by name; they override those of a preset."""


def with_options(command: Callable[..., None]) -> Callable[..., None]:
    """Decorates a command: each dataclass among its parameters is replaced by an option per field."""
    hints = get_type_hints(command, include_extras=True)
    shown: list[inspect.Parameter] = []
    made: dict[str, Callable[[Given], Any]] = {}
    for name, parameter in inspect.signature(command).parameters.items():
        kind, whole = _options_of(hints[name])
        if kind is None:
            shown.append(parameter.replace(annotation=hints[name], kind=inspect.Parameter.KEYWORD_ONLY))
            continue
        shown.extend(_parameter(field, hint, whole) for field, hint in _fields(kind))
        names = [field.name for field, _ in _fields(kind)]
        made[name] = functools.partial(_whole if whole else _given, kind, names)

    plain = hints.keys() - made.keys()

    @functools.wraps(command)
    def run(**values: Any) -> None:
        passed = {name: value for name, value in values.items() if name in plain}
        command(**passed, **{name: make(values) for name, make in made.items()})

    run.__signature__ = inspect.Signature(shown)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in shown}
    return run


def _options_of(hint: Any) -> tuple[type | None, bool]:
    """The dataclass whose fields are a parameter's options (or None), and whether the parameter takes an instance of it
    rather than `Given`."""
    if is_dataclass(hint) and isinstance(hint, type):
        return hint, True
    if get_origin(hint) is Annotated and get_args(hint)[0] == Given:
        return get_args(hint)[1], False
    return None, False


def _fields(kind: type) -> Iterator[tuple[Field[Any], Any]]:
    hints = get_type_hints(kind, include_extras=True)
    for field in fields(kind):
        if any(isinstance(extra, OptionInfo) for extra in getattr(hints[field.name], "__metadata__", ())):
            yield field, hints[field.name]


def _parameter(field: Field[Any], hint: Any, whole: bool) -> inspect.Parameter:
    default = field.default
    if not whole:
        hint, option = get_args(hint)
        hint, default = Annotated[(str if get_origin(hint) is tuple else hint) | None, option], None
    return inspect.Parameter(
        field.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=inspect.Parameter.empty if default is MISSING else default,
        annotation=hint,
    )


def _whole(kind: type, names: list[str], values: Given) -> Any:
    return kind(**{name: values[name] for name in names})


def _given(kind: type, names: list[str], values: Given) -> Given:
    """Drops options that were not given; splits comma-separated values of tuple fields."""
    hints = get_type_hints(kind)
    given = {name: values[name] for name in names if values[name] is not None}
    return {k: tuple(v.split(",")) if get_origin(hints[k]) is tuple else v for k, v in given.items()}
