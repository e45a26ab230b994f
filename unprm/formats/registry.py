"""All families: the `FAMILIES` of every module here."""

import json
import pkgutil
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import unprm.formats
from unprm.errors import ModelInvalid
from unprm.formats.family import Family, KnownModel
from unprm.formats.probe import FAMILY, ProbeConfig
from unprm.formats.unprm import CONFIG_NAME, PrmConfig
from unprm.validation_messages import unknown


def families() -> dict[str, Family]:
    """Families by name, in alphabetical order."""
    modules = [import_module(f"unprm.formats.{each.name}") for each in pkgutil.iter_modules(unprm.formats.__path__)]
    found: list[Family] = [family for module in modules for family in getattr(module, "FAMILIES", ())]
    return {family.name: family for family in sorted(found, key=lambda family: family.name)}


def read_config(directory: Path) -> PrmConfig | ProbeConfig:
    """What the `prm_config.json` in a directory says; raises `ModelInvalid` if it is missing or malformed."""
    return (ProbeConfig if is_probe(directory) else PrmConfig).read(directory)


def is_probe(directory: Path) -> bool:
    """Whether the `prm_config.json` in a directory, if there is one, is that of a probe."""
    try:
        config = json.loads((directory / CONFIG_NAME).read_text("utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(config, dict) and config.get("family") == FAMILY.name


def family_named(name: str) -> Family:
    """The family of this name; raises `ModelInvalid` if there is none."""
    known = families()
    if name not in known:
        raise ModelInvalid(f"{name!r} {unknown(name, known, 'a family')}")
    return known[name]


def known_models() -> Iterator[tuple[Family, KnownModel]]:
    return ((family, model) for family in families().values() for model in family.models)


def of_architecture(architectures: list[str]) -> Family | None:
    """The family that the architectures in a `config.json` belong to; None if they don't determine it."""
    return next((family for family in families().values() if set(family.architectures) & set(architectures)), None)


def recognise(model: str, architectures: list[str]) -> Family:
    """The family of a model by its name or its architectures. Raises `ModelInvalid` if neither is known."""
    named = (family for family, known in known_models() if model == known.name)
    if found := next(named, None) or of_architecture(architectures):
        return found
    raise ModelInvalid(
        f"model {model!r} ({', '.join(architectures) or 'no architecture'}) has neither a prm_config.json nor a known "
        f"name: give a PRM adapter with --adapter, or say by --family how it is read: {', '.join(families())}"
    )
