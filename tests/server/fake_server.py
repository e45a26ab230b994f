"""A server with the fake engine as a process, for the tests of signals and logs: DELAY [OPTIONS]."""

import sys

from server.app import create_app
from server.logs import configure
from server.serving import DrainingServer
from server.settings import Settings
from unprm.engines.fake import FakeEngine


def main() -> None:
    settings = Settings.load(sys.argv[2:])
    configure(settings.log_level, settings.log_format)
    engine = FakeEngine(delay=float(sys.argv[1]), failures={0: RuntimeError("CANARY")}, demo=True)
    DrainingServer(create_app(settings, engine), settings).run()


if __name__ == "__main__":
    main()
