"""The certificate of HTTPS, which is read again when its files change."""

import logging
import ssl
from pathlib import Path

from .changes import Signature, signature

logger = logging.getLogger(__name__)


class Certificate:
    """A certificate and its private key in `context`, which has them already; connections get the version that is there
    when they begin. `key`: None if it is in the certificate's file."""

    def __init__(self, context: ssl.SSLContext, file: Path, key: Path | None) -> None:
        self._context = context
        self._file, self._key = file, key
        self._seen: Signature | None = self._signature()

    def refresh(self) -> None:
        """Reads the files again if they have changed. Logs if they can't be used, and keeps what was there."""
        seen = self._signature()
        if seen == self._seen:
            return
        self._seen = seen
        try:
            # a context that is given a certificate without its key has none afterwards
            for context in (ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), self._context):
                context.load_cert_chain(self._file, self._key)
        except OSError as error:  # one of ssl's, too
            logger.error("the certificate was not reloaded: the new one or its key can't be used (%s)", error)
        else:
            logger.info("the certificate was reloaded")

    def _signature(self) -> Signature | None:
        try:
            return signature(*(file for file in (self._file, self._key) if file is not None))
        except OSError:  # to be renamed into place, perhaps
            return None
