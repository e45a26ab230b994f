"""Serves a model until SIGTERM or SIGINT.

python -m server --model Qwen/Qwen2.5-Math-7B-Instruct --adapter PATH_OR_HUB_NAME --port 8000
python -m server models
"""

import sys

from server.app import create_app
from server.catalogue import show
from server.logs import configure
from server.serving import DrainingServer
from server.settings import Settings, SettingsInvalid
from unprm.errors import ModelInvalid
from unprm.types import Engine


def main() -> int:
    """Exit status: 0 after a signal, 2 for settings or a model that can't be used, 1 if loading fails otherwise."""
    if sys.argv[1:] == ["models"]:
        show()
        return 0
    try:
        settings = Settings.load(sys.argv[1:])
    except SettingsInvalid as error:
        print(error, file=sys.stderr)
        return 2
    configure(settings.log_level, settings.log_format)

    def load() -> Engine:
        try:
            return _load(settings)
        except BaseException as error:  # whatever it was, without a model there is nothing to serve
            server.give_up(2 if isinstance(error, ModelInvalid) else 1)
            raise

    server = DrainingServer(create_app(settings, load), settings)
    server.run()
    return server.status


def _load(settings: Settings) -> Engine:
    # only here: the server itself needs no torch
    from transformers.utils import logging as transformers_logging

    from unprm.engines.load import load_engine

    # what it warns of, tensors that are missing or too many, is checked here; its bars are no log lines
    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    return load_engine(
        settings.model,
        adapter=settings.adapter,
        revision=settings.revision,
        adapter_revision=settings.adapter_revision,
        family=settings.family,
        reference=settings.reference,
        beta=settings.beta,
        engine=settings.engine,
        url=settings.url,
        key=settings.url_key.get_secret_value() if settings.url_key else None,
        memory=settings.memory,
        device=settings.device,
        dtype=settings.dtype,
        batch_tokens=settings.batch_tokens,
    )


if __name__ == "__main__":
    sys.exit(main())
