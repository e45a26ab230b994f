"""docs/demo.gif, a walk through the page with the embedded model, and the picture that a shared link of the page shows.

make screenshot
"""

import io
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, Locator, Route

from tests.browser.harness import Sheet, chromium
from tests.server.harness import serving

ROOT = Path(__file__).parents[2]
DEMO = ROOT / "docs" / "demo.gif"
CARD = ROOT / "server" / "page" / "files" / "card.png"
WIDE = {"width": 1280, "height": 800}
SHARED = {"width": 1200, "height": 630}
"""Pixels of a picture beside a shared link."""
_SHRUNK = (1024, 640)
_COLOURS = 224
_POINTER = """
([x, y]) => {
  const id = "pointer", dot = document.getElementById(id) ?? document.body.appendChild(document.createElement("div"));
  const look = "width:22px;height:22px;border-radius:50%;background:#e8590c99;border:2px solid #fff";
  const place = `position:fixed;z-index:9;pointer-events:none;left:${x - 11}px;top:${y - 11}px`;
  Object.assign(dot, { id }).style.cssText = `${look};${place}`;
}
"""


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
    nodes = sheet.page.locator("h1, h2, h3, p, label, legend, summary, .chip, .badge, .facts, .tile, dt, dd, th, td")
    return "\n".join([*fields, *(" ".join(text.split()) for text in nodes.all_text_contents())])


class Film:
    """Pictures of a page, each with the milliseconds that it is shown."""

    def __init__(self, sheet: Sheet) -> None:
        self.page = sheet.page
        self._frames: list[Image.Image] = []
        self._durations: list[int] = []

    def take(self, milliseconds: int) -> None:
        picture = (
            Image.open(io.BytesIO(self.page.screenshot())).convert("RGB").resize(_SHRUNK, Image.Resampling.LANCZOS)
        )
        self._frames.append(picture)
        self._durations.append(milliseconds)

    def point(self, at: Locator) -> None:
        """Shows the pointer there, then clicks."""
        box = at.bounding_box()
        assert box
        self.page.evaluate(_POINTER, [box["x"] + min(box["width"] / 2, 120), box["y"] + box["height"] / 2])
        self.take(500)
        at.click()

    def save(self, path: Path, text: str) -> None:
        """Writes a GIF with all pictures in the colours of the last, and a text as its comment."""
        palette = self._frames[-1].quantize(_COLOURS)
        first, *rest = (frame.quantize(palette=palette, dither=Image.Dither.NONE) for frame in self._frames)
        first.save(path, save_all=True, append_images=rest, duration=self._durations, loop=0, comment=text.encode())


def film(sheet: Sheet) -> Film:
    """A problem gets five candidates, their steps are scored, and votes are compared; some ten seconds."""
    page, held = sheet.page, list[Route]()
    problem, candidates = (page.locator(name).input_value() for name in ("#problem", "#candidates"))
    blank = page.evaluate("async () => (await import('./page/link.js')).toFragment({ problem: '', candidates: '' })")
    page.goto("about:blank")
    sheet.open(f"#{blank}")
    taken = Film(sheet)
    page.locator("#problem").fill(problem)
    taken.take(700)
    texts = candidates.split("\n===\n")
    for number in range(1, len(texts) + 1):
        page.evaluate(
            """async (texts) => (await import('./page/input.js')).fill({ problem: null, solutions: texts })""",
            texts[:number],
        )
        taken.take(250)
    page.route("**/score_steps", lambda route: held.append(route))
    with page.expect_request("**/score_steps"):
        taken.point(page.locator("#score"))
    taken.take(400)
    held[0].continue_()
    page.locator("#votes").wait_for()
    sheet.settled()
    page.locator(".katex-html").first.wait_for()
    taken.take(2500)
    taken.point(page.locator(".tile", has_text="majority").first)
    taken.take(1400)
    taken.point(page.locator(".tile", has_text="wrf"))
    taken.point(page.locator("#why summary"))
    for alpha in (0.5, 0.3, 0.0):
        sheet.slide_and_vote(alpha)
        taken.take(600)
    sheet.slide_and_vote(0.5)
    taken.point(page.locator("#why summary"))
    taken.take(2000)
    return taken


def main() -> None:
    """Takes the pictures."""
    from unprm.models.load import load_engine

    with serving(load_engine) as running, chromium() as browser:
        sheet = visit(browser, running.url)
        text = text_of(sheet)
        film(sheet).save(DEMO, text)
        larger = {name: 4 * size // 3 for name, size in SHARED.items()}
        shared = Image.open(io.BytesIO(visit(browser, running.url, larger).page.screenshot())).convert("RGB")
        shared = shared.resize((SHARED["width"], SHARED["height"]), Image.Resampling.LANCZOS)
        shared.quantize(256).save(CARD, optimize=True)


if __name__ == "__main__":
    main()
