"""Serves one or several models until a signal."""

import logging
import resource
import sys
from functools import partial

from unprm.errors import ModelInvalid, RecordInvalid
from unprm.models.options import LoadModelRequest
from unprm.types import Engine

from .app import create_app
from .http.callers import KeysInvalid
from .models.load import load
from .observe import tracing
from .observe.journal import JournalUnusable
from .observe.logs import configure
from .observe.metrics import Metrics
from .observe.tracing import TracingUnavailable
from .serving import AddressUnusable, CertificateInvalid, DrainingServer
from .settings import Settings

logger = logging.getLogger(__name__)

_SWITCH_SECONDS = 0.0005
"""Python's thread switch interval, a tenth of the default. The model's thread releases the interpreter for each of its
many operations; with the default, under steady requests, it would wait ten times as long to get it back each time."""
_FILES = 65_536
"""Open files that are enough."""


def run(settings: Settings) -> int:
    """Returns the exit status: 0 after a signal; 2 if keys, a calibration, an address or a model can't be used; 1 if
    loading fails otherwise, or the model hangs or fails for good. If it is not 0, the last line on stderr says why."""
    configure(settings.log_level, settings.log_format)
    sys.setswitchinterval(_SWITCH_SECONDS)
    _open_more_files()
    if settings.otlp_endpoint:
        try:
            tracing.configure(settings.otlp_endpoint)
        except TracingUnavailable as error:
            print(error, file=sys.stderr)
            return 2

    metrics = Metrics()

    def open_model(request: LoadModelRequest) -> Engine:
        return load(settings, request, metrics.called_judge)

    def open_first(request: LoadModelRequest) -> Engine:
        try:
            return open_model(request)
        except BaseException as error:  # whatever the error, the server can't serve its model
            if isinstance(error, ModelInvalid):
                server.give_up(2, f"the model can't be served: {error}")
            else:
                server.give_up(1, f"the model could not be loaded: {type(error).__name__}: {error}")
            raise

    def lose() -> None:
        server.give_up(1, "the model is lost: it hangs or always fails; see the lines above")

    models = {name: partial(open_first, request) for name, request in settings.models().items()}
    try:
        server = DrainingServer(create_app(settings, models, open_model, lose, metrics), settings)
        server.run()
    except (KeysInvalid, JournalUnusable, RecordInvalid, CertificateInvalid, AddressUnusable) as error:
        print(error, file=sys.stderr)
        return 2
    if server.reason:
        logger.error("ended with status %d: %s", server.status, server.reason)
    return server.status


def _open_more_files() -> None:
    """Raises the soft limit of open files, often 1,024, towards the hard one: each connection is a file."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _FILES if hard == resource.RLIM_INFINITY else min(hard, _FILES)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
