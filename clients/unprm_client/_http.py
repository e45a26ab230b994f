"""Converts httpx's errors to the clients' errors."""

import httpx

from unprm_client.errors import ClientError, ConnectionFailed, DeadlineExceeded


def failure(error: httpx.HTTPError, seconds: float) -> ClientError:
    """The client error for an error of httpx; `seconds`: how long the call waited."""
    if isinstance(error, httpx.ConnectTimeout):
        return ConnectionFailed("the server did not take the connection in time")
    if isinstance(error, httpx.TimeoutException):
        return DeadlineExceeded(f"no answer within {seconds:.1f} s")
    return ConnectionFailed(f"{type(error).__name__}: {error}")
