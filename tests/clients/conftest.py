"""The servers of the server's own tests: the clients are held to the real one."""

from tests.server.conftest import engine, server

__all__ = ["engine", "server"]
