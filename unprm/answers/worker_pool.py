"""The parent's side of the worker processes: spawn them, ask them, kill them, replace them."""

import json
import os
import queue
import select
import signal
import subprocess
import threading
import time
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from unprm.answers.mathtext.keys import AnswerKey
from unprm.errors import ShuttingDown

START_SECONDS = 60.0  # time limit for a process to set itself up, on a busy machine
_GRACE = 1.0  # seconds past the deadline after which a worker that has not replied is given up


class WorkerDied(Exception):
    """The process working on an answer ended, or sent something that isn't a reply. `signal`: the signal that killed
    it, 0 if none did."""

    def __init__(self, signal: int = 0) -> None:
        super().__init__(f"ended by signal {signal}" if signal else "ended, or not understood")
        self.signal = signal


class OutOfTime(Exception):
    """No reply came before the deadline, or load may have kept it from its share of the CPU."""


class WorkerProcess:
    """One worker process. It is used by one thread at a time, but any thread may kill it."""

    def __init__(self, command: Sequence[str]) -> None:
        # Its own process group: the terminal's Ctrl-C reaches only the server, and its forks are killed with it. Not
        # its own session: there the kernel might give it as much CPU time as the server, whatever its priority.
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            env={}, cwd="/", bufsize=0, process_group=0,
        )  # fmt: skip
        self._received = b""
        self._last_id = 0
        self._ready = False
        self._sound = True
        self._overdue = time.monotonic() + START_SECONDS

    def wait_ready(self, until: float) -> None:
        """Waits until the process has set itself up. Raises `WorkerDied` and `OutOfTime`."""
        if not self._ready:
            if self._receive(until).get("ready") is not True:
                raise WorkerDied
            self._ready = True

    def ask(self, answer: str, until: float) -> AnswerKey:
        """The worker's reply. `until` is a moment of `time.monotonic`. Raises `WorkerDied` and `OutOfTime`."""
        self.wait_ready(until)
        self._last_id += 1
        self._sound = False
        self._send({"id": self._last_id, "answer": answer, "seconds": max(0.0, until - time.monotonic())})
        reply = self._receive(until + _GRACE)
        # The id rules out a late reply to an earlier question whose caller was interrupted.
        self._sound = reply.get("id") == self._last_id
        match reply:
            case {
                "id": self._last_id, "key": str() as key, "unitless": str() as unitless,
                "as_text": bool() as as_text, "refused": bool() as refused,
            }:  # fmt: skip
                return AnswerKey(key, unitless, as_text, refused)
            case {"id": self._last_id, "late": True}:
                raise OutOfTime
            case {"id": self._last_id, "signal": int() as number}:
                raise WorkerDied(number)
        raise WorkerDied

    def _send(self, message: dict[str, object]) -> None:
        stdin = self._process.stdin
        assert stdin is not None
        try:
            stdin.write(json.dumps(message).encode() + b"\n")
        except (OSError, ValueError):  # a broken pipe, or one that another thread closed
            raise WorkerDied(self._signal()) from None

    def _receive(self, until: float) -> dict[str, object]:
        while b"\n" not in self._received:
            self._received += self._read(until)
        line, self._received = self._received.split(b"\n", 1)
        try:
            message = json.loads(line)
        except ValueError:
            raise WorkerDied from None
        if not isinstance(message, dict):
            raise WorkerDied
        return message

    def _read(self, until: float) -> bytes:
        stdout = self._process.stdout
        assert stdout is not None
        try:
            poll = select.poll()
            poll.register(stdout, select.POLLIN)
            if not poll.poll(max(0.0, until - time.monotonic()) * 1000):
                raise OutOfTime
            data = stdout.read(65536)
        except (OSError, ValueError):
            raise WorkerDied(self._signal()) from None
        if not data or len(self._received) > 65536:
            raise WorkerDied(self._signal())
        return bytes(data)

    def _signal(self) -> int:
        """The signal that ended the process, 0 if none. Its output is closed, so it has ended or is about to."""
        try:
            code = self._process.wait(timeout=1)
        except subprocess.TimeoutExpired:
            return 0
        return max(0, -code)

    @property
    def usable(self) -> bool:
        """Whether it may be used: it is still setting itself up, within the time limit, or has answered its last
        question."""
        if self._process.poll() is not None:
            return False
        return self._sound if self._ready else time.monotonic() < self._overdue

    def kill(self) -> None:
        """Kills the process and its forks, from any thread. Idempotent."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def dispose(self) -> None:
        """Kills the process and closes its pipes; only for the thread that uses it. Idempotent."""
        self.kill()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()


class WorkerPool:
    """At most `size` workers that run `command`, each spawned when needed and replaced when lost."""

    def __init__(self, command: Sequence[str], size: int) -> None:
        self._state = _PoolState(command, size)
        # Runs at close, when the pool is garbage-collected, or when the interpreter exits, whichever comes first.
        self._finalizer = weakref.finalize(self, _PoolState.close, self._state)

    def start(self, until: float) -> None:
        """Spawns a worker and waits until it is ready. Raises `WorkerDied`, `OutOfTime`, `ShuttingDown`."""
        with self._worker(until) as worker:
            worker.wait_ready(until)

    def ask(self, answer: str, until: float) -> AnswerKey:
        """A worker's reply. Raises `WorkerDied`, `OutOfTime`, `ShuttingDown`; a worker that is no longer usable is
        replaced."""
        with self._worker(until) as worker:
            return worker.ask(answer, until)

    @contextmanager
    def _worker(self, until: float) -> Iterator[WorkerProcess]:
        state = self._state
        try:
            worker = state.idle.get(timeout=max(0.0, until - time.monotonic()))
        except queue.Empty:
            raise OutOfTime from None
        try:
            if worker is None or not worker.usable:
                worker = state.replaced(worker)
            if worker is None:
                raise ShuttingDown if state.closed else WorkerDied
            yield worker
        except (OutOfTime, WorkerDied):
            if worker is not None and not worker.usable:
                worker = state.replaced(worker)
            raise
        finally:
            state.give_back(worker)

    def close(self) -> None:
        """Kills all workers. Idempotent."""
        self._finalizer()


class _PoolState:
    """What must be cleaned up when a pool is garbage-collected, so it doesn't refer to the pool."""

    def __init__(self, command: Sequence[str], size: int) -> None:
        self.command = command
        self.idle: queue.LifoQueue[WorkerProcess | None] = queue.LifoQueue()  # None: to be spawned
        for _ in range(size):
            self.idle.put(None)
        self.closed = False
        self._running: set[WorkerProcess] = set()
        self._lock = threading.Lock()

    def replaced(self, worker: WorkerProcess | None) -> WorkerProcess | None:
        """A new process in place of a lost one, still setting itself up; None if there can't be one, because the
        pool is closed or the system can't spawn one."""
        if worker is not None:
            worker.dispose()
        with self._lock:
            self._running -= {worker}
            if self.closed:
                return None
            try:
                fresh = WorkerProcess(self.command)
            except OSError:
                return None
            self._running.add(fresh)
            return fresh

    def give_back(self, worker: WorkerProcess | None) -> None:
        with self._lock:
            closed = self.closed
        if closed and worker is not None:
            worker.dispose()
            worker = None
        self.idle.put(worker)

    def close(self) -> None:
        with self._lock:
            self.closed = True
            doomed = list(self._running)
            self._running.clear()
        for worker in doomed:  # busy ones too; the thread that uses one then disposes of it
            worker.kill()
        for spare in list(self._drained()):
            if spare is not None:
                spare.dispose()
            self.idle.put(None)

    def _drained(self) -> Iterator[WorkerProcess | None]:
        with suppress(queue.Empty):
            while True:
                yield self.idle.get_nowait()
