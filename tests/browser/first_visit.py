"""docs/page.png: the page on a first visit to a server with the embedded model, with the text that was on it.

make screenshot
"""

import struct
import zlib
from pathlib import Path

from playwright.sync_api import Browser

from tests.browser.harness import Sheet, chromium
from tests.server.harness import serving

PICTURE = Path(__file__).parents[2] / "docs" / "page.png"
WIDE = {"width": 1280, "height": 800}
_LENGTH_AND_TYPE = struct.Struct(">I4s")
_SECOND_CHUNK = 33
"""Byte offset in a PNG, after its signature of 8 bytes and its header of 25."""


def visit(browser: Browser, url: str, size: dict[str, int] | None = None) -> Sheet:
    """The page when the first vote is on it, and nobody has done anything."""
    context = browser.new_context(viewport=size or WIDE, reduced_motion="reduce", color_scheme="light")  # type: ignore[arg-type]
    sheet = Sheet(context.new_page(), url).open()
    sheet.page.locator(".katex-html").first.wait_for()
    sheet.settled()
    sheet.page.evaluate("document.fonts.ready")
    return sheet


def text_of(sheet: Sheet) -> str:
    """All text on the page but that of formulas, and what stands in the form."""
    fields = [sheet.page.locator(name).input_value() for name in ("#problem", "#candidates")]
    nodes = sheet.page.locator("h1, h2, h3, p, label, summary, .chip, .badge, .facts, .tile, dt, dd")
    return "\n".join([*fields, *(" ".join(text.split()) for text in nodes.all_text_contents())])


def with_text(picture: bytes, text: str) -> bytes:
    """The PNG with a text in it."""
    content = b"Description\0\0\0\0\0" + text.encode()
    chunk = struct.pack(">I", len(content)) + b"iTXt" + content + struct.pack(">I", zlib.crc32(b"iTXt" + content))
    return picture[:_SECOND_CHUNK] + chunk + picture[_SECOND_CHUNK:]


def text_in(picture: bytes) -> str:
    """The text in a PNG of `with_text`."""
    length, _ = _LENGTH_AND_TYPE.unpack_from(picture, _SECOND_CHUNK)
    start = _SECOND_CHUNK + _LENGTH_AND_TYPE.size
    return picture[start : start + length].split(b"\0", 5)[-1].decode()


def main() -> None:
    """Takes the picture."""
    from unprm.models.load import load_engine

    with serving(load_engine) as running, chromium() as browser:
        sheet = visit(browser, running.url)
        PICTURE.write_bytes(with_text(sheet.page.screenshot(), text_of(sheet)))


if __name__ == "__main__":
    main()
