"""Ray's HTTP proxies, which read requests before anything of this server does."""

from starlette.middleware import Middleware
from uvicorn.config import HTTP_PROTOCOLS

from server.protocol import BoundedProtocol


def bound() -> list[Middleware]:
    """Has the proxy that it is called in read HTTP as a server of its own does, within the same bounds.

    Ray calls what RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH names as a proxy starts, for middleware, of which there is
    none here. Its options have no place for a protocol, so uvicorn's default is replaced.
    """
    HTTP_PROTOCOLS["auto"] = f"{BoundedProtocol.__module__}:{BoundedProtocol.__qualname__}"
    return []
