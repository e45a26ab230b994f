"""Process reward models: score the steps of candidate solutions, and vote for an answer."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from unprm.library import grade, score, vote
    from unprm.types import Engine

    __version__: str

__all__ = ["__version__", "grade", "load_prm", "score", "vote"]


def load_prm(name_or_path: str = "unprm-mini", **options: Any) -> "Engine":
    """Loads a PRM: the embedded model, one on the hub, or a directory. Needs the extra `serve`.

    `options`: `adapter`, `family`, `device`, `dtype` and the other fields of `ModelSpec` and `EngineOptions`
    (`unprm.models.options`). Close it, or end the program, to free its memory. Raises `unprm.errors.ModelInvalid`.
    """
    from unprm.models.load import load_engine

    return load_engine(name_or_path, **options)


def __getattr__(name: str) -> Any:
    """`grade`, `score` and `vote`: `import unprm` alone needs neither PyTorch nor pydantic. The version is looked up on
    demand, too."""
    if name == "__version__":
        from unprm.version import version

        return version()
    if name not in ("grade", "score", "vote"):
        raise AttributeError(f"module 'unprm' has no attribute {name!r}")
    from unprm import library

    return getattr(library, name)


def __dir__() -> list[str]:
    return sorted(__all__)
