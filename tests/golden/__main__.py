"""Writes the golden files anew: `python -m tests.golden [NAME …]`."""

import argparse
import tempfile
from pathlib import Path

from tests.golden import kept
from tests.golden.goldens import GOLDENS

parser = argparse.ArgumentParser(prog="python -m tests.golden", description="Writes the golden files anew.")
parser.add_argument("names", nargs="*", default=[*GOLDENS], help=f"Some of {', '.join(GOLDENS)}; default: all.")
for name in parser.parse_args().names:
    with tempfile.TemporaryDirectory() as directory:
        made = GOLDENS[name](Path(directory))
    print(kept.difference(name, made) or f"{name}: as before")
    kept.write(name, made)
