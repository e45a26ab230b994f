"""Callers: whose share of the server they use, their quotas, and their keys, which are read again when they change."""

import hmac
import re
import string
import time
from collections.abc import Callable, Mapping
from ipaddress import IPv6Address, ip_address
from pathlib import Path

from pydantic import SecretStr

from unprm.errors import Overloaded

from .reloading import Reloading

# ASCII: a key may contain any non-ASCII character, even one that Unicode counts as white space
_LINE = re.compile(r"(?P<name>[A-Za-z0-9._-]{1,64})\s+(?P<key>\S{8,})(\s+(?P<tokens>[1-9]\d{0,17}))?", re.ASCII)


def share_of(caller: str, client: tuple[str, int] | None) -> str:
    """The share that a request counts against: the named caller's; without a name, that of its client address.

    Only the first 64 bits of an IPv6 address count: its owner chooses the others.
    """
    if caller or client is None:
        return caller
    try:
        address = ip_address(client[0])
    except ValueError:  # a socket without an address
        return ""
    if isinstance(address, IPv6Address):
        return f"{address.ipv4_mapped}/32" if address.ipv4_mapped else f"{address.exploded[:19]}::/64"
    return f"{address}/32"  # with a character that no caller's name has


class Quota:
    """Tokens that a caller may use: `per_minute` at once, and as many again each minute. Requests are let in while some
    are left; what they use beyond is owed, and paid back before the next. `clock`: in seconds."""

    def __init__(self, per_minute: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.per_minute = per_minute
        self._clock = clock
        self._left, self._then = float(per_minute), clock()

    def check(self) -> None:
        """Raises `Overloaded` if none are left."""
        self.charge(0)
        if self._left <= 0:
            detail = f"the {self.per_minute} tokens a minute of this key are used up"
            raise Overloaded(detail, (1 - self._left) * 60 / self.per_minute)

    def charge(self, tokens: int) -> None:
        """Takes tokens, or gives back a negative number of them."""
        now = self._clock()
        earned = (now - self._then) * self.per_minute / 60
        self._left, self._then = min(self.per_minute, self._left + earned) - tokens, now


class KeysInvalid(ValueError):
    """The key file can't be used; the message says where and contains no key."""


class Keys:
    """Names of callers by their keys; `key` is that of a caller without a name.

    `file` has a line `NAME KEY [TOKENS]` for each caller, TOKENS being those that it may use in a minute; blank lines
    and those that begin with # are ignored. It is checked at every request, so that rewriting it changes the keys. If a
    new version is invalid, that is logged and the old keys stay; if the first is, raises `KeysInvalid`.
    """

    def __init__(self, key: SecretStr | None, file: Path | None) -> None:
        self._configured = {} if key is None else {key.get_secret_value().encode(): ""}
        self._read: dict[bytes, str] = {}
        self._quotas: dict[str, Quota] = {}
        self._file = None if file is None else Reloading("keys", lambda: self._take(_read(file)), file)

    @property
    def needed(self) -> bool:
        """Whether callers must send a key."""
        return bool(self._configured) or self._file is not None

    def caller(self, sent: bytes) -> str | None:
        """The name of the caller with this key, None if there is none. Takes equally long for every key."""
        if self._file is not None:
            self._file.refresh()
        found = None
        for key, name in (self._configured | self._read).items():
            if hmac.compare_digest(sent, key):
                found = name
        return found

    def quota(self, caller: str) -> Quota | None:
        """The quota of a caller, by its name; None if it has none."""
        return self._quotas.get(caller)

    def _take(self, found: Mapping[bytes, tuple[str, int | None]]) -> None:
        """Puts other keys in place; a quota that stays the same goes on."""
        self._read = {key: name for key, (name, _) in found.items()}
        before, self._quotas = self._quotas, {}
        for name, tokens in found.values():
            if tokens is not None:
                kept = before.get(name)
                self._quotas[name] = kept if kept and kept.per_minute == tokens else Quota(tokens)


def _read(file: Path) -> dict[bytes, tuple[str, int | None]]:
    """By key, the name and the tokens of its caller. Raises `KeysInvalid`."""
    try:
        lines = file.read_text("utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise KeysInvalid(f"the key file {file} can't be read ({type(error).__name__})") from None
    found: dict[bytes, tuple[str, int | None]] = {}
    for number, line in enumerate((line.strip(string.whitespace) for line in lines), 1):
        if not line or line.startswith("#"):
            continue
        entry = _LINE.fullmatch(line)
        if entry is None:
            raise KeysInvalid(f"{file}, line {number}: expected NAME KEY [TOKENS], a key of at least 8 characters")
        name, key, tokens = entry["name"], entry["key"].encode(), entry["tokens"]
        if key in found or any(name == other for other, _ in found.values()):
            raise KeysInvalid(f"{file}, line {number}: the name or the key is a duplicate")
        found[key] = name, None if tokens is None else int(tokens)
    if not found:
        raise KeysInvalid(f"the key file {file} has no keys: nobody could use the server")
    return found
