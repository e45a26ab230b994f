"""A server with the fake engine as a process, for the tests of signals, logs and faults: UNTIL [OPTIONS].

A batch takes until there is a file UNTIL. The first batch fails; with `lost` for the file, all of them.
"""

import sys
import threading
import time
from pathlib import Path

from server.app import create_app
from server.observe import configure_logs
from server.serving import DrainingServer
from server.settings import Settings
from server.tracing import configure_traces
from tests.fake_engine import FakeEngine
from tests.server.options import read


class _Gate(threading.Event):
    """Open while there is a file."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self._file = file

    def wait(self, timeout: float | None = None) -> bool:
        while not self._file.exists():
            time.sleep(0.005)
        return True


def main() -> int:
    settings = read(Settings, sys.argv[2:])
    configure_logs(settings.log_level, settings.log_format)
    if settings.otlp_endpoint:
        configure_traces(settings.otlp_endpoint)
    lost = sys.argv[1] == "lost"
    failures = dict.fromkeys(range(1000 if lost else 1), RuntimeError("CANARY"))
    engine = FakeEngine(gate=None if lost else _Gate(Path(sys.argv[1])), failures=failures)
    server = DrainingServer(create_app(settings, engine, lost=lambda: server.give_up(1, "the model is lost")), settings)
    server.run()
    return server.status


if __name__ == "__main__":
    sys.exit(main())
