"""The installed version."""


def version() -> str:
    """As in the package's metadata."""
    from importlib import metadata  # takes as long to import as the rest of `unprm --help`

    try:
        return metadata.version("unprm")
    except metadata.PackageNotFoundError:  # a checkout that is not installed
        return "0+checkout"
