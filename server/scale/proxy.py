"""Ray's HTTP proxies, which read requests before any code of this server."""

from starlette.middleware import Middleware
from uvicorn.config import HTTP_PROTOCOLS

from ..http.protocol import BoundedProtocol


def bound() -> list[Middleware]:
    """Makes the proxy that calls it read HTTP within the same bounds as a single server.

    When a proxy starts, Ray calls what RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH names to get middleware; here there is
    none. Ray has no option for a protocol, so uvicorn's default is replaced.
    """
    HTTP_PROTOCOLS["auto"] = f"{BoundedProtocol.__module__}:{BoundedProtocol.__qualname__}"
    return []
