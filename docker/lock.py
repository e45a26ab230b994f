"""Writes into a file of requirements what the wheels of each package hash to:

python docker/lock.py docker/requirements-cpu.txt x86_64 aarch64
python docker/lock.py docker/requirements-cuda.txt x86_64

Versions stay as they are; to raise one, change it in the file first. The wheels are those for the images' Python on the
machines that are named. Nothing is installed.
"""

import json
import re
import subprocess
import sys
from pathlib import Path

_PYTHON, _GLIBC = "3.11", 36
"""Of Debian 12, whose glibc is 2.36."""
_ASK = ["install", "--dry-run", "--quiet", "--ignore-installed", "--no-deps", "--only-binary=:all:", "--target=/unused"]
_ASK += [f"--python-version={_PYTHON}", "--implementation=cp", "--report=-", "--requirement=/dev/stdin"]


def main() -> None:
    """Rewrites the file."""
    file, machines = Path(sys.argv[1]), sys.argv[2:]
    pins = [line.split()[0] for line in file.read_text("ascii").splitlines()]
    found = [_hashes(pins, machine) for machine in machines]
    rows = []
    for pin in pins:
        wheels = sorted({hashes[pin.partition("==")[0]] for hashes in found})
        rows.append(" ".join([pin, *(f"--hash=sha256:{wheel}" for wheel in wheels)]))
    file.write_text("\n".join(rows) + "\n", "ascii")


def _hashes(pins: list[str], machine: str) -> dict[str, str]:
    """By name, what the wheel for a machine hashes to."""
    tags = [f"manylinux_2_{minor}_{machine}" for minor in range(_GLIBC, 16, -1)] + [f"manylinux2014_{machine}"]
    command = [sys.executable, "-m", "pip", *_ASK, *(f"--platform={tag}" for tag in tags)]
    report = subprocess.run(command, input="\n".join(pins), text=True, stdout=subprocess.PIPE, check=True).stdout
    hashes = {}
    for wheel in json.loads(report)["install"]:
        name = re.sub(r"[-_.]+", "-", wheel["metadata"]["name"]).lower()
        hashes[name] = wheel["download_info"]["archive_info"]["hashes"]["sha256"]
    return hashes


if __name__ == "__main__":
    main()
