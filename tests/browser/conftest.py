"""A browser for each file of tests, a server, and the page in it."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from tests.browser.harness import Sheet, chromium
from tests.fake_engine import FakeEngine
from tests.server.harness import Running, serving


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """`make test-browser` runs the tests of this folder."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.browser)


# of a module, no longer: while it runs, the thread has a loop, and other tests run loops of their own
@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """The machine's Chromium."""
    with chromium() as running:
        yield running


@pytest.fixture(scope="module")
def running() -> Iterator[Running]:
    """A server with a model that is quick and always says the same."""
    with serving(FakeEngine(max_tokens=4000)) as server:
        yield server


@pytest.fixture
def sheet(browser: Browser, running: Running) -> Iterator[Sheet]:
    """The page, opened; in the end the browser has found nothing wrong, and nothing left the origin."""
    context = browser.new_context(permissions=["clipboard-read", "clipboard-write"], reduced_motion="reduce")
    opened = Sheet(context.new_page(), running.url)
    yield opened.open()
    context.close()
    assert opened.complaints == []
    assert opened.foreign() == []
