"""Writes the golden files anew: all of them, or those that are named.

python -m tests.golden [NAME …]
"""

import sys
import tempfile
from pathlib import Path

from tests.golden import kept
from tests.golden.goldens import GOLDENS

for name in sys.argv[1:] or GOLDENS:
    with tempfile.TemporaryDirectory() as directory:
        made = GOLDENS[name](Path(directory))
    print(kept.difference(name, made) or f"{name}: as before")
    kept.write(name, made)
