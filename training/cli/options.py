"""Command-line options that are declared once, as the fields of a dataclass.

A field `Annotated` with a `typer.Option` is an option. A command decorated with `with_options` can take such a
dataclass as a parameter, or only those of a stage's settings that were given on the command line:

    @app.command()
    @with_options
    def select(samples: Path, place: Place, given: Annotated[Given, SelectSettings]) -> None: ...
"""

import functools
import inspect
from collections.abc import Callable, Iterator
from dataclasses import MISSING, Field, fields, is_dataclass
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import typer
from rich.console import Console
from rich.markup import escape
from typer.models import OptionInfo

from unprm.errors import UnprmError

Given = dict[str, Any]
"""The settings given on the command line, by name; they override those of a preset."""


def run(app: typer.Typer) -> None:
    """Runs a command line; an `UnprmError` or `OSError` is printed as one red line, with exit code 1."""
    try:
        app()
    except (UnprmError, OSError) as error:
        Console(stderr=True).print(f"[red]{escape(str(error))}[/red]", highlight=False, soft_wrap=True)
        raise SystemExit(1) from None


def with_options(command: Callable[..., None]) -> Callable[..., None]:
    """Decorates a command: each dataclass among its parameters is replaced by an option per field.

    As `Given`, a field of type `tuple[str, ...]` takes values separated by commas, one of another tuple takes a value
    each time its option is given, and a field without a default must be given.
    """
    hints = get_type_hints(command, include_extras=True)
    shown: list[inspect.Parameter] = []
    made: dict[str, Callable[[Given], Any]] = {}
    for name, parameter in inspect.signature(command).parameters.items():
        hint = hints[name]
        if isinstance(hint, type) and is_dataclass(hint):
            shown += [_parameter(field.name, option, field.default) for field, option in _options(hint)]
            made[name] = functools.partial(_whole, hint)
        elif get_origin(hint) is Annotated and get_args(hint)[0] == Given:
            settings = get_args(hint)[1]
            shown += [_overriding(field, option) for field, option in _options(settings)]
            made[name] = functools.partial(_given, settings)
        else:
            shown.append(_parameter(name, hint, parameter.default))

    plain = hints.keys() - made.keys()

    @functools.wraps(command)
    def with_plain_options(**values: Any) -> None:
        passed = {name: value for name, value in values.items() if name in plain}
        command(**passed, **{name: make(values) for name, make in made.items()})

    with_plain_options.__signature__ = inspect.Signature(shown)  # type: ignore[attr-defined]
    with_plain_options.__annotations__ = {parameter.name: parameter.annotation for parameter in shown}
    return with_plain_options


def _options(kind: type) -> Iterator[tuple[Field[Any], Any]]:
    """The fields that are options, and their types with the `typer.Option`."""
    hints = get_type_hints(kind, include_extras=True)
    for field in fields(kind):
        if any(isinstance(extra, OptionInfo) for extra in getattr(hints[field.name], "__metadata__", ())):
            yield field, hints[field.name]


def _parameter(name: str, hint: Any, default: Any) -> inspect.Parameter:
    default = inspect.Parameter.empty if default is MISSING else default
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=hint)


def _overriding(field: Field[Any], hint: Any) -> inspect.Parameter:
    """An option that is None unless it is given."""
    plain, option = get_args(hint)
    if get_origin(plain) is tuple:
        (item, _) = get_args(plain)
        plain = str if item is str else list[item]  # type: ignore[valid-type]
    if field.default is MISSING:
        return _parameter(field.name, Annotated[plain, option], MISSING)
    return _parameter(field.name, Annotated[plain | None, option], None)


def _whole(kind: type, values: Given) -> Any:
    return kind(**{field.name: values[field.name] for field, _ in _options(kind)})


def _given(settings: type, values: Given) -> Given:
    given = {field.name: values[field.name] for field, _ in _options(settings) if values[field.name] is not None}
    tuples = {name for name, hint in get_type_hints(settings).items() if get_origin(hint) is tuple}
    return {k: tuple(v.split(",") if isinstance(v, str) else v) if k in tuples else v for k, v in given.items()}
