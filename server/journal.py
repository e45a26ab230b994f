"""Requests and their answers in an SQLite file, for audits; and of elections, whether their answer was right, once
somebody says so.

Off by default: it holds callers' texts, unless it is to do without. It is bounded in size; the oldest entries are
deleted first. Requests never wait for it: entries that can't be written, or not fast enough, are counted and left out.
"""

import asyncio
import json
import logging
import os
import sqlite3
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple, Self, TypeVar

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from unprm.election.acceptance import error_interval
from unprm.errors import Overloaded

from .lease import Lease

T = TypeVar("T")

logger = logging.getLogger(__name__)

BUSY_SECONDS = 5.0
"""After which a journal that could not be used is asked for again."""
WAITING_BYTES = 64 * 2**20
"""Of entries that are not written yet, at most."""
_SCHEMA = """
PRAGMA journal_mode = WAL;
PRAGMA synchronous = NORMAL;
PRAGMA journal_size_limit = 4194304;
CREATE TABLE IF NOT EXISTS requests (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    time TEXT NOT NULL,           -- of the answer, UTC
    request_id TEXT NOT NULL,
    caller TEXT NOT NULL,         -- name of the key, '' without one
    path TEXT NOT NULL,
    status INTEGER NOT NULL,      -- 499: the caller did not wait
    milliseconds REAL NOT NULL,
    request TEXT NOT NULL,        -- the body as it was sent
    response TEXT NOT NULL,
    election TEXT,                -- as `ElectionRecord`; NULL for what is none
    correct INTEGER               -- whether its answer was right, as far as somebody said so
);
CREATE VIEW IF NOT EXISTS verdicts AS
    SELECT id, time, request_id, caller, path,
           json_extract(response, '$.strategy') AS strategy, json_extract(response, '$.answer') AS answer,
           json_extract(response, '$.decided_by') AS decided_by, json_extract(response, '$.tie') AS tie,
           json_extract(response, '$.margin') AS margin, json_extract(response, '$.model') AS model
    FROM requests WHERE status = 200 AND path LIKE '/vote%' AND path <> '/vote/compare';
"""
_INSERT = """
INSERT INTO requests (time, request_id, caller, path, status, milliseconds, request, response, election)
VALUES (?, ?, ?, ?, ?, ?, CAST(? AS TEXT), CAST(? AS TEXT), ?)
"""
_ADDED = {"election": "TEXT", "correct": "INTEGER"}
"""Columns that journals of before lack."""
_INDICES = """
CREATE INDEX IF NOT EXISTS elections ON requests (request_id) WHERE election IS NOT NULL;
DROP INDEX IF EXISTS judged; -- of journals of before
CREATE INDEX IF NOT EXISTS accepted ON requests (correct, json_extract(election, '$.risk'))
    WHERE correct IS NOT NULL AND json_extract(election, '$.accept') = 1;
"""
_FIND = """
SELECT id, election FROM requests WHERE request_id = ? AND caller = ? AND election IS NOT NULL ORDER BY id DESC LIMIT 1
"""
_ACCEPTED = """
SELECT count(*), total(correct = 0), total(json_extract(election, '$.risk')) FROM requests
WHERE correct IS NOT NULL AND json_extract(election, '$.accept') = 1
"""
_OLDEST = "SELECT min(id) + (max(id) - min(id)) / 100 FROM requests"
_LARGEST = 64
_LEFT_OUT = b"null"
"""What is written in place of the texts of an entry that would take more than the `_LARGEST`-th part of the journal."""


class JournalUnusable(Exception):
    """The journal's file can't be written to."""


class Entry(NamedTuple):
    """A request and its answer; `request` and `response` are the bodies, `election` is JSON."""

    time: str
    request_id: str
    caller: str
    path: str
    status: int
    milliseconds: float
    request: bytes
    response: bytes
    election: str | None = None


class AcceptedErrors(NamedTuple):
    """How many accepted answers were judged, how many of them were wrong, and the sum of the risks at which they were
    accepted."""

    judged: int = 0
    wrong: int = 0
    risks: float = 0.0

    def changed(self, before: Self, after: Self | None = None) -> Self:
        """These, with `after` in place of `before` among them."""
        judged, wrong, risks = after or (0, 0, 0.0)
        return type(self)(
            self.judged - before.judged + judged, self.wrong - before.wrong + wrong, self.risks - before.risks + risks
        )

    def collect(self) -> Iterator[Metric]:
        """Without values if none was judged."""
        judged = GaugeMetricFamily("unprm_accepted_judged", "Accepted answers judged by /feedback.", labels=[])
        risk = GaugeMetricFamily("unprm_accepted_risk", "Mean risk at which they were accepted.", labels=[])
        help = "Share of them that was wrong (share), and the ends of its exact 95 % interval (low, high)."
        error = GaugeMetricFamily("unprm_accepted_error", help, labels=["bound"])
        if self.judged:
            judged.add_metric([], self.judged)
            risk.add_metric([], self.risks / self.judged)
            interval = error_interval(self.wrong, self.judged)
            for bound, value in zip(("share", "low", "high"), (self.wrong / self.judged, *interval), strict=True):
                error.add_metric([bound], value)
        return iter((judged, risk, error))


class Journal(Collector):
    """A file of at most about `max_bytes`. `texts`: whether callers' texts are kept; `dropped`: number of entries left
    out; `accepted`: of the answers that the journal still has. Raises `JournalUnusable`."""

    def __init__(self, file: Path, max_bytes: int, waiting_bytes: int = WAITING_BYTES, *, texts: bool = True) -> None:
        self.dropped = 0
        self.texts = texts
        self.accepted = AcceptedErrors()
        self._max_bytes, self._most_waiting = max_bytes, waiting_bytes
        self._lock = threading.Lock()
        self._waiting_bytes = 0
        self._failing = False
        try:
            opened = os.open(file, os.O_RDWR | os.O_CREAT, 0o600)
            os.close(opened)
            for each in (file, *(file.with_name(file.name + end) for end in ("-wal", "-shm"))):
                if each.exists() and each.stat().st_mode & 0o077:  # readable by its owner only
                    each.chmod(0o600)
            self._database = sqlite3.connect(file, check_same_thread=False, isolation_level=None)
            self._database.executescript(_SCHEMA)
            known = {row[1] for row in self._database.execute("PRAGMA table_info(requests)")}
            for name in _ADDED.keys() - known:
                self._database.execute(f"ALTER TABLE requests ADD COLUMN {name} {_ADDED[name]}")
            self._database.executescript(_INDICES)
            self.accepted = self._accepted()
        except (OSError, sqlite3.Error) as error:
            raise JournalUnusable(f"the journal {file} can't be written to ({error})") from None
        self._writer = ThreadPoolExecutor(1, "journal")

    def note_request(self, lease: Lease, path: str, status: int, seconds: float, response: bytes) -> None:
        """As `note`, for a request that had a body."""
        election = lease.election
        if election is not None and not self.texts:
            election = replace(election, answer=None)
        if lease.body:
            self.note(
                Entry(
                    time=datetime.now(UTC).isoformat(timespec="milliseconds"),
                    request_id=lease.request_id,
                    caller=lease.caller,
                    path=path,
                    status=status,
                    milliseconds=round(1000 * seconds, 1),
                    request=lease.body,
                    response=response,
                    election=None if election is None else json.dumps(asdict(election)),
                )
            )

    def note(self, entry: Entry) -> None:
        """Queues an entry to be written, or drops it if too much is queued."""
        size = len(entry.request) + len(entry.response) + 200
        with self._lock:
            if self._waiting_bytes + size > self._most_waiting:
                self.dropped += 1
                return
            self._waiting_bytes += size
        self._writer.submit(self._write, entry, size)

    async def find(self, request_id: str, caller: str) -> tuple[int, dict[str, Any]] | None:
        """The number and the `ElectionRecord`, as a dictionary, of the last election with this id that the caller held;
        None if there is none."""
        row = await self._run(lambda: self._database.execute(_FIND, (request_id, caller)).fetchone())
        return None if row is None else (row[0], json.loads(row[1]))

    async def judge(self, number: int, correct: bool) -> None:
        """Notes whether the answer of the election of this number was right."""

        def write() -> None:
            before = self._accepted("AND id = ?", number)
            self._database.execute("UPDATE requests SET correct = ? WHERE id = ?", (correct, number))
            self.accepted = self.accepted.changed(before, self._accepted("AND id = ?", number))

        await self._run(write)

    async def _run(self, function: Callable[[], T]) -> T:
        """Calls a function after the entries before it were written. Raises `Overloaded` if the file can't be used now,
        as while another program has locked it."""
        try:
            return await asyncio.wrap_future(self._writer.submit(function))
        except sqlite3.Error as error:
            raise Overloaded(f"the journal can't be used now ({type(error).__name__})", BUSY_SECONDS) from None

    def _accepted(self, condition: str = "", *values: int) -> AcceptedErrors:
        """Counts the entries for which the condition holds: counting all each time would take ever longer."""
        judged, wrong, risks = self._database.execute(_ACCEPTED + condition, values).fetchone()
        return AcceptedErrors(judged, int(wrong), risks)

    def collect(self) -> Iterator[Metric]:
        yield CounterMetricFamily("unprm_journal_dropped", "Requests left out of the journal.", self.dropped)
        yield from self.accepted.collect()

    def close(self) -> None:
        """Writes the queued entries and closes the file."""
        self._writer.shutdown()
        self._database.close()

    def _write(self, entry: Entry, size: int) -> None:
        failed = None
        try:
            needed = size
            if not self.texts or size > self._max_bytes // _LARGEST:
                entry, needed = entry._replace(request=_LEFT_OUT, response=_LEFT_OUT), 0
            while (used := self._used()) and used + needed > self._max_bytes:
                last = self._database.execute(_OLDEST).fetchone()[0]
                dropped = self._accepted("AND id <= ?", last)
                self._database.execute("DELETE FROM requests WHERE id <= ?", (last,))
                self.accepted = self.accepted.changed(dropped)
            self._database.execute(_INSERT, entry)
        except sqlite3.Error as error:
            failed = type(error).__name__
        if failed and not self._failing:
            logger.error("the journal can't be written (%s): entries are left out", failed)
        with self._lock:
            self._waiting_bytes -= size
            self.dropped += failed is not None
            self._failing = failed is not None

    def _used(self) -> int:
        """Bytes of the file that hold entries; the others will be reused."""
        if self._database.execute("SELECT 1 FROM requests LIMIT 1").fetchone() is None:
            return 0
        pages, free, size = (
            int(self._database.execute(f"PRAGMA {name}").fetchone()[0])
            for name in ("page_count", "freelist_count", "page_size")
        )
        return (pages - free) * size
