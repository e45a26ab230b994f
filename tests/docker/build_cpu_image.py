"""Runs every line of docker/Dockerfile.cpu in a root directory of its own, then the image's server, alone and as two
replicas under Ray, and its client, as a container would: its user and environment, a file system that can't be written
to but for /tmp, /dev/shm and the volumes. Needs root, chroot and debootstrap, no Docker.

python -m tests.docker.build_cpu_image [--build-arg NAME=VALUE]… [--build-context NAME=PATH]… [--env NAME=VALUE]…
    [--mount PATH]…

`--env` and `--mount` are for the build alone: where a machine without a network has its packages (PIP_FIND_LINKS, say).
"""

import argparse
import contextlib
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from string import Template

from dockerfile_parse import DockerfileParser

from tests.support import ROOT

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
PORT = "18000"
CANDIDATES = json.dumps({"problem": "1 + 1 = ?", "solutions": [["\\boxed{2}"], ["\\boxed{3}"]]})
SCALE = ["python3", "-m", "server.scale", "--replicas", "2"]


class Stage:
    """A stage of the build: a Debian of its own."""

    def __init__(self, place: Path, environment: dict[str, str]) -> None:
        self.place = place
        self.environment = dict(environment)
        self.directory, self.user = "/", "root"
        self.entry: list[str] = []
        self.check: list[str] = []
        self.volumes: list[str] = []

    def run(self, command: list[str], given: str | None = None, **more: str) -> None:
        """Runs a command in it, as its user, with a text to read."""
        subprocess.run(self.command(command), env=self.environment | more, check=True, input=given, text=True)

    def command(self, command: list[str]) -> list[str]:
        """How a command is run in it."""
        inner = f"cd {shlex.quote(self.directory)} && exec {shlex.join(command)}"
        chroot = ["chroot", *([] if self.user == "root" else ["--userspec", f"{self.user}:nogroup"]), str(self.place)]
        return [*chroot, "/bin/sh", "-c", inner]


def main() -> int:
    """Exit status 0 if the image was built, and its server, alone and under Ray, became ready and voted."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build-arg", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--build-context", action="append", default=[], metavar="NAME=PATH")
    parser.add_argument("--env", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--mount", action="append", default=[], type=Path, metavar="PATH")
    given = parser.parse_args()
    arguments, environment, contexts = ({pair.partition("=")[0]: pair.partition("=")[2] for pair in rows} for rows in
                                        (given.build_arg, given.env, given.build_context))  # fmt: skip
    with tempfile.TemporaryDirectory() as directory, contextlib.ExitStack() as mounts:
        image = build("Dockerfile.cpu", Path(directory), arguments, contexts, environment, given.mount, mounts)
        _try(image)
    print("built, ready, voted")
    return 0


def build(
    name: str,
    place: Path,
    arguments: dict[str, str],
    contexts: dict[str, str],
    more: dict[str, str],
    extras: list[Path],
    mounts: contextlib.ExitStack,
) -> Stage:
    """The last stage of a Dockerfile of docker/, built in `place`."""
    stages: dict[str, Stage] = {}
    stage: Stage | None = None
    base = place / "debian"
    shell = ["/bin/sh", "-c"]
    with (ROOT / "docker" / name).open("rb") as file:
        rows = DockerfileParser(fileobj=file, env_replace=False).structure
    for row in rows:
        instruction, value = row["instruction"], row["value"]
        if instruction in ("COMMENT", "EXPOSE"):
            continue
        print(f"== {instruction} {value}", flush=True)
        if instruction == "ARG":
            name, given, text = value.partition("=")
            if given:
                arguments.setdefault(name, text)
            continue
        if instruction == "FROM":
            image, *named = Template(value).substitute(arguments).split()
            stage = Stage(
                place / f"stage{len(stages)}", {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
            )
            stages[named[1] if named else "last"] = stage
            if image == "scratch":
                stage.place = Path(contexts.get(named[1], stage.place))
                stage.place.mkdir(exist_ok=True)
                continue
            _debian(base, image.removeprefix("debian:").partition("-")[0])
            subprocess.run(["cp", "-a", base, stage.place], check=True)
            mounts.enter_context(_mounted(stage.place, extras))
            continue
        assert stage is not None
        if instruction == "SHELL":
            shell = json.loads(value)
        elif instruction == "RUN":
            with _mounts_of(value, stage, stages) as command:
                stage.run([*shell, command], **arguments, **more)
        elif instruction == "ENV":
            for pair in shlex.split(value):
                name, _, text = pair.partition("=")
                stage.environment[name] = text.replace("$PATH", stage.environment["PATH"])
        elif instruction == "WORKDIR":
            stage.directory = value
        elif instruction == "USER":
            stage.user = value
        elif instruction == "VOLUME":
            assert (stage.place / value.lstrip("/")).is_dir()
            stage.volumes.append(value)
        elif instruction == "COPY":
            _copy(stage, stages, value.split())
        elif instruction == "HEALTHCHECK":
            stage.check = json.loads(value.partition("CMD ")[2])
        elif instruction == "ENTRYPOINT":
            stage.entry = json.loads(value)
        else:
            raise ValueError(f"{instruction} is not known here")
    assert stage is not None
    return stage


def _debian(place: Path, suite: str) -> None:
    if not place.exists():
        subprocess.run(["debootstrap", "--variant=minbase", suite, str(place)], check=True, stdout=subprocess.DEVNULL)


@contextlib.contextmanager
def _mounted(place: Path, extras: list[Path]) -> Iterator[None]:
    shutil.copy("/etc/resolv.conf", place / "etc" / "resolv.conf")
    mounts = [place / "proc"]  # of its own, like all that it may write to: what goes wrong stays within
    subprocess.run(["mount", "-t", "proc", "proc", mounts[0]], check=True)
    for extra in extras:
        target = place / str(extra).lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.mkdir() if extra.is_dir() else target.touch()
        subprocess.run(["mount", "--bind", extra, target], check=True)
        subprocess.run(["mount", "-o", "remount,ro,bind", target], check=True)  # the host's stay as they are
        mounts.append(target)
    try:
        yield
    finally:
        for target in reversed(mounts):
            subprocess.run(["umount", "--lazy", target], check=True)


@contextlib.contextmanager
def _mounts_of(value: str, stage: Stage, stages: dict[str, Stage]) -> Iterator[str]:
    """The command of a RUN, while what its `--mount` names is there."""
    flag, _, command = value.partition(" ") if value.startswith("--mount=") else ("", "", value)
    mount = dict(pair.split("=") for pair in flag.removeprefix("--mount=").split(",") if pair)
    target = stage.place / mount.get("target", "").lstrip("/")
    if mount:
        target.mkdir()
        subprocess.run(["mount", "--bind", stages[mount["from"]].place, target], check=True)
    try:
        yield command
    finally:
        if mount:
            subprocess.run(["umount", target], check=True)
            target.rmdir()


def _copy(stage: Stage, stages: dict[str, Stage], words: list[str]) -> None:
    source = ROOT
    if words[0].startswith("--from="):
        source = stages[words.pop(0).removeprefix("--from=")].place
    *names, target = words
    for name in names:
        whole, goal = source / name.lstrip("/"), stage.place / target.lstrip("/")
        if whole.is_dir():
            shutil.copytree(
                whole, goal, symlinks=True, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__")
            )
        else:
            goal = goal / whole.name if target.endswith("/") else goal
            goal.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(whole, goal)


def _try(image: Stage) -> None:
    """Has the server vote, alone and with two replicas, asked over HTTP and by its own client, on a file system that
    can't be written to."""
    image.environment |= {"UNPRM_PORT": PORT, "UNPRM_CLIENT_URL": f"http://127.0.0.1:{PORT}"}
    with _read_only(image):
        for entry in (image.entry, SCALE):
            print(f"== {shlex.join(entry)}", flush=True)
            with _serving(image, entry) as server:
                status = Path(f"/proc/{server.pid}/status").read_text("ascii")
                assert "Uid:\t10001\t10001" in status, "the server runs as another user"
                _vote()
                image.run(["unprm", "vote"], CANDIDATES)
        refused = subprocess.run(image.command(["touch", "/app/new"]), env=image.environment, stderr=subprocess.PIPE)
        assert b"Read-only file system" in refused.stderr


@contextlib.contextmanager
def _read_only(image: Stage) -> Iterator[None]:
    """What `docker run --read-only --tmpfs /tmp` leaves to be written to, and the home that it names."""
    (row,) = [
        line for line in (image.place / "etc" / "passwd").read_text().splitlines() if line.split(":")[2] == image.user
    ]
    image.environment["HOME"] = row.split(":")[5]
    (image.place / "dev" / "shm").mkdir(exist_ok=True)
    temporary = "mode=1777,noexec,nosuid,nodev"
    tmpfs = {"/tmp": temporary, "/dev/shm": f"{temporary},size=4g"}
    tmpfs |= dict.fromkeys(image.volumes, f"mode=755,uid={image.user}")
    subprocess.run(["mount", "--bind", image.place, image.place], check=True)  # leaves behind what is mounted in it
    subprocess.run(["mount", "-o", "remount,ro,bind", image.place], check=True)
    subprocess.run(["mount", "-t", "proc", "proc", image.place / "proc"], check=True)
    for place, options in tmpfs.items():
        subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", f"{image.place}{place}"], check=True)
    try:
        yield
    finally:
        for place in [*tmpfs, "/proc", ""]:
            subprocess.run(["umount", "--lazy", f"{image.place}{place}"], check=True)


@contextlib.contextmanager
def _serving(image: Stage, entry: list[str]) -> Iterator[subprocess.Popen[bytes]]:
    """A process of the image, from when its health check is content until it ended with status 0."""
    server = subprocess.Popen(image.command(entry), env=image.environment)
    try:
        until = time.monotonic() + 120
        while subprocess.run(image.command(image.check), env=image.environment, stderr=subprocess.DEVNULL).returncode:
            assert server.poll() is None, f"the server ended with status {server.returncode}"
            assert time.monotonic() < until, "the server was not ready within two minutes"
            time.sleep(1)
        yield server
    finally:
        server.terminate()
        assert server.wait(60) == 0


def _vote() -> None:
    request = urllib.request.Request(
        f"http://127.0.0.1:{PORT}/vote/prm", CANDIDATES.encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request) as response:
        assert json.load(response)["usage"]["computed_tokens"] > 0


if __name__ == "__main__":
    if os.geteuid() != 0:
        sys.exit("chroot needs root")
    sys.exit(main())
