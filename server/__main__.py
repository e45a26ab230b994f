"""Serves a model until SIGTERM or SIGINT.

python -m server --model Qwen/Qwen2.5-Math-7B-Instruct --adapter PATH_OR_HUB_NAME --port 8000
"""

import sys

from server.app import create_app
from server.logs import configure
from server.serving import DrainingServer
from server.settings import Settings, SettingsInvalid
from unprm.types import Engine


def main() -> int:
    """The exit status: 0 after a signal, 1 if no model could be loaded, 2 for settings that can't be used."""
    try:
        settings = Settings.load(sys.argv[1:])
    except SettingsInvalid as error:
        print(error, file=sys.stderr)
        return 2
    configure(settings.log_level, settings.log_format)

    def load() -> Engine:
        try:
            return _load(settings)
        except BaseException:  # whatever it was, without a model there is nothing to serve
            server.give_up()
            raise

    server = DrainingServer(create_app(settings, load), settings)
    server.run()
    return int(server.failed)


def _load(settings: Settings) -> Engine:
    from unprm.engines.load import load_engine  # only here: the server itself needs no torch

    return load_engine(
        settings.model,
        adapter=settings.adapter,
        revision=settings.revision,
        adapter_revision=settings.adapter_revision,
        device=settings.device,
        dtype=settings.dtype,
        batch_tokens=settings.batch_tokens,
    )


if __name__ == "__main__":
    sys.exit(main())
