"""Commands, and their options, which are declared once: as the fields of a dataclass or of a pydantic model.

A field of a dataclass that is `Annotated` with a `typer.Option` is an option, and so is every field of a model. A
command decorated with `with_options` can take a dataclass as a parameter, or what is given of a dataclass or a model:

    @app.command()
    @with_options
    def select(samples: Path, place: Place, given: Annotated[Given, SelectSettings, PRESETS]) -> None: ...

The help of such an option has its default; with presets, mappings of fields to values by name, its value in each.
"""

import copy
import functools
import inspect
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, fields, is_dataclass
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import typer
from typer.core import TyperCommand
from typer.models import OptionInfo

from .errors import UnprmError
from .version import version

PREFIX = "UNPRM_"
"""Of the variables that set a model's fields."""
Given = dict[str, Any]
"""What is given on the command line, by the fields' names."""


class SettingsInvalid(Exception):
    """Options, variables or a file are invalid; the message has a line for each and contains no value."""


def option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def variable(name: str) -> str:
    return f"{PREFIX}{name.upper()}"


def _show_version(asked: bool) -> None:
    if asked:
        typer.echo(version())
        raise typer.Exit


class _Command(TyperCommand):
    """Its help has a section for each group of options, and names of types that a user knows."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        return [re.sub(r"[{}]", "", piece).upper() for piece in super().collect_usage_pieces(ctx)]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        sections: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            if record := parameter.get_help_record(ctx):
                title = "Arguments" if parameter.param_type_name == "argument" else "Options"
                title = getattr(parameter, "rich_help_panel", None) or title
                shown = record[0].replace(parameter.name, parameter.name.upper()) if title == "Arguments" else record[0]
                sections.setdefault(title, []).append((_named_type(shown), record[1]))
        sections["Options"] = sections.pop("Options")  # the last: those that every command has are there
        for title, records in sections.items():
            with formatter.section(title):
                formatter.write_dl(records)


def _named_type(option: str) -> str:
    return re.sub(r"<list\[(\w+)\]>", r"<\1>", option).replace("<SecretStr>", "<key>").replace("<FileText>", "<file>")


class _Program(typer.Typer):
    def command(self, *arguments: Any, **more: Any) -> Callable[[Any], Any]:
        return super().command(*arguments, cls=_Command, **more)


def program(about: str, **more: Any) -> typer.Typer:
    """A program without commands. `more`: further arguments of `typer.Typer`."""
    return _Program(
        help=about,
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,  # help and errors come sooner without rich
        context_settings={"help_option_names": ["--help", "-h"], "max_content_width": 120},
        **more,
    )


def group(about: str, **more: Any) -> typer.Typer:
    """As `program`, for several commands, with an option for the version."""
    app = program(about, **more)
    shown = typer.Option("--version", help="Show the version and exit.", is_eager=True, callback=_show_version)

    @app.callback()
    def every(version: Annotated[bool, shown] = False) -> None:
        pass

    return app


def run(app: typer.Typer, arguments: Sequence[str] | None = None, name: str | None = None) -> None:
    """Runs a command line, by default the process's. An error that its user can mend is printed in red, with exit
    status 2 for `SettingsInvalid` and 1 for `UnprmError`, `OSError` and safetensors' own."""
    try:
        typer.main.get_command(app)(arguments, name)
    except (
        SettingsInvalid,
        UnprmError,
        OSError,
        getattr(sys.modules.get("safetensors"), "SafetensorError", OSError),
    ) as error:
        from rich.console import Console
        from rich.markup import escape

        Console(stderr=True).print(f"[red]{escape(str(error))}[/red]", highlight=False, soft_wrap=True)
        raise SystemExit(2 if isinstance(error, SettingsInvalid) else 1) from None


def with_options(command: Callable[..., None]) -> Callable[..., None]:
    """Decorates a command: each dataclass and each `Given` among its parameters is replaced by an option per field.

    Of a dataclass, a field of type `tuple[str, ...]` takes values separated by commas, one of another tuple takes a
    value each time its option is given, and a field without a default must be given. Of a model, each field is given as
    a text that the model validates; the values of a list, repeated or not, come joined by commas.
    """
    hints = get_type_hints(command, include_extras=True)
    shown: list[inspect.Parameter] = []
    made: dict[str, tuple[Any, dict[str, Any]]] = {}
    for name, parameter in inspect.signature(command).parameters.items():
        kind, *more = get_args(hints[name]) or (hints[name],)
        if kind != Given and not is_dataclass(kind):
            shown.append(parameter.replace(kind=parameter.KEYWORD_ONLY, annotation=hints[name]))
            continue
        source, *presets = more or [kind]
        if is_dataclass(source):
            options = [*_options(source, *presets or [{"default": {}}] if kind == Given else ())]
        else:
            options = [*_texts(source)]
        shown += options
        made[name] = kind, {option.name: get_type_hints(source)[option.name] for option in options}

    @functools.wraps(command)
    def with_plain_options(**values: Any) -> None:
        for name, (kind, types) in made.items():
            given = {field: values.pop(field) for field in types}
            values[name] = kind(**{field: _value(types[field], v) for field, v in given.items() if v is not None})
        command(**values)

    with_plain_options.__signature__ = inspect.Signature(shown)  # type: ignore[attr-defined]
    with_plain_options.__annotations__ = {parameter.name: parameter.annotation for parameter in shown}
    return with_plain_options


def _options(kind: Any, presets: Mapping[str, Mapping[str, Any]] | None = None) -> Iterator[inspect.Parameter]:
    """The options of a dataclass. With `presets`, the default of an option whose field has one is None, and its help
    has the field's value in each preset."""
    hints = get_type_hints(kind, include_extras=True)
    for field in fields(kind):
        hint, *more = get_args(hints[field.name]) or (None,)
        if not (option := [annotation for annotation in more if isinstance(annotation, OptionInfo)]):
            continue
        if get_origin(hint) is tuple:
            hint = str if get_args(hint)[0] is str else list[get_args(hint)[0]]  # type: ignore[misc]
        default = inspect.Parameter.empty if field.default is MISSING else field.default
        if presets and field.default is not MISSING:
            default, option = None, [copy.copy(option[0])]
            option[0].help = f"{option[0].help or ''} {_by_preset(field, presets)}".strip() or None
        yield _parameter(field.name, Annotated[hint | None, *option], default)


def _by_preset(field: Field[Any], presets: Mapping[str, Mapping[str, Any]]) -> str:
    """A field's value in each preset, `[default: 3]` if it is the same in all; empty for one that is off or unset."""
    values = {name: preset.get(field.name, field.default) for name, preset in presets.items()}
    if len(set(values.values())) == 1:
        values = {"default": values.popitem()[1]}
    shown = {name: ",".join(value) if isinstance(value, tuple) else str(value) for name, value in values.items()}
    told = "; ".join(f"{name}: {value}" for name, value in shown.items())
    return f"[{told}]" if set(shown.values()) - {"None", "False", ""} else ""


def _texts(model: Any) -> Iterator[inspect.Parameter]:
    hints = get_type_hints(model)
    groups = {
        name: getattr(each, "GROUP", None) for each in reversed(model.__mro__) for name in inspect.get_annotations(each)
    }
    for name, field in model.model_fields.items():
        default = f" (default: {_value(hints[name], field.default)})" if field.default else ""
        shown = typer.Option(
            option(name),
            help=f"{field.description}{default} [env: {variable(name)}]",
            parser=None if hints[name] is bool else _text,
            rich_help_panel=groups[name],
        )
        yield _parameter(name, Annotated[hints[name] | None, shown], None)


def _parameter(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _text(value: str) -> str:
    if value.startswith("--"):
        raise typer.BadParameter("expected a value before the next option")
    return value


def _value(hint: Any, value: Any) -> Any:
    """A field's value of its option's: a text with commas or a list becomes a tuple, and a list of texts one text."""
    if get_origin(hint) is tuple:
        return tuple(value.split(",") if isinstance(value, str) else value)
    return ",".join(value) if get_origin(hint) is list else value
