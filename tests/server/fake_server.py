"""A server with the fake engine as a process, for the tests of signals, logs and faults: DELAY [OPTIONS].

The first batch fails; with the delay `lost`, all of them.
"""

import sys

from server.app import create_app
from server.http.serving import DrainingServer
from server.observe import tracing
from server.observe.logs import configure
from server.settings import Settings
from unprm.engines.fake import FakeEngine


def main() -> int:
    settings = Settings.load(sys.argv[2:])
    configure(settings.log_level, settings.log_format)
    if settings.otlp_endpoint:
        tracing.configure(settings.otlp_endpoint)
    lost = sys.argv[1] == "lost"
    failures = dict.fromkeys(range(1000 if lost else 1), RuntimeError("CANARY"))
    engine = FakeEngine(delay=0 if lost else float(sys.argv[1]), failures=failures, demo=True)
    server = DrainingServer(create_app(settings, engine, lost=lambda: server.give_up(1, "the model is lost")), settings)
    server.run()
    return server.status


if __name__ == "__main__":
    sys.exit(main())
