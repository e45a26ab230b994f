"""The page in a real browser: opened, watched, and used as a person would."""

import json
import math
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, ConsoleMessage, Locator, Page, Response, expect, sync_playwright

PATIENCE = 60_000
"""Milliseconds."""
expect.set_options(timeout=PATIENCE)


@contextmanager
def chromium() -> Iterator[Browser]:
    """The browser of the machine, until the end of the block; without one the test is skipped."""
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if program is None:
        pytest.skip("the page is tested in a real Chromium: install one (Debian: apt-get install chromium)")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield browser
        browser.close()


class Sheet:
    """An opened page; `requests`: the URLs that it requested; `complaints`: what the browser found wrong with it."""

    def __init__(self, page: Page, url: str) -> None:
        self.page = page
        self.url = url
        self.requests: list[str] = []
        self.complaints: list[str] = []
        page.set_default_timeout(PATIENCE)
        page.on("request", lambda request: self.requests.append(request.url))
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("console", self._heard)
        page.on("response", self._answered)

    def _heard(self, message: ConsoleMessage) -> None:
        # the page itself shows an error that the server answers with
        if message.type == "error" and not message.text.startswith("Failed to load resource"):
            self.complaints.append(message.text)

    def _answered(self, response: Response) -> None:
        if response.status >= 400 and "/page/" in response.url:
            self.complaints.append(f"{response.status} {response.url}")

    def open(self, fragment: str = "") -> "Sheet":
        """Waits until the page shows its first vote, or why there is none."""
        self.page.goto(f"{self.url}/{fragment}")
        self.settled()
        return self

    def settled(self) -> None:
        """Waits until nothing is scored."""
        expect(self.page.locator("#results")).to_have_attribute("aria-busy", "false")

    def score(self, problem: str, *candidates: Any) -> None:
        """Writes into the form and scores; texts are candidates as they stand, the rest JSON lines."""
        plain = all(isinstance(candidate, str) for candidate in candidates)
        lines = candidates if plain else [json.dumps(candidate) for candidate in candidates]
        self.page.get_by_label("Problem", exact=True).fill(problem)
        self.paste("\n===\n".join(lines) if plain else "\n".join(lines))
        self.press("Score and vote")
        self.settled()

    def paste(self, text: str) -> None:
        """Writes all candidates at once."""
        self.unfold("#paste")
        self.page.get_by_label("Candidate solutions").fill(text)

    def solution(self, index: int) -> Locator:
        """The card of a solution, wherever it stands; one of the elected answer is shown."""
        self.unfold(".same")
        return self.page.locator(f"#solution-{index + 1}")

    def press(self, name: str) -> None:
        self.page.get_by_role("button", name=name, exact=True).click()

    def tile(self, strategy: str) -> str:
        """What is said of a strategy: its name, its answer, and whether that won a tie."""
        return self._tile(strategy).inner_text()

    def elected(self, strategy: str) -> str:
        """The text of the answer that a strategy elects."""
        return self._tile(strategy).locator(".answer").inner_text()

    def choose(self, strategy: str) -> None:
        """Chooses a vote, and opens how it elects its answer."""
        self.unfold("#why")
        self._tile(strategy).locator("input").check()

    def unfold(self, details: str) -> None:
        """Opens what is folded, unless it is open."""
        summary = self.page.locator(f"{details}:not([open]) > summary")
        if summary.count() > 0:
            summary.click()

    def _tile(self, strategy: str) -> Locator:
        expect(self.page.locator("#votes")).to_be_visible()
        return self.page.locator(f".tile:has(input[value={strategy}])")

    def slide(self, *alphas: float) -> None:
        """Sets α as the slider does, one event for each value without a pause, no release."""
        self.page.locator("#alpha").evaluate(
            """(node, values) => values.forEach((value) => {
              node.value = value;
              node.dispatchEvent(new Event('input', {bubbles: true}));
            })""",
            list(map(str, alphas)),
        )

    def slide_and_vote(self, alpha: float) -> None:
        """Sets α, and waits until the votes are there, or an error."""
        self.slide(alpha)
        self.voted()

    def voted(self) -> None:
        """Waits until no vote is under way."""
        expect(self.page.locator("#ballot")).to_have_attribute("aria-busy", "false")

    def complaint(self) -> tuple[str, str]:
        """The code and the text of the error that is shown."""
        error = self.page.locator(".complaint")
        error.wait_for()
        return error.get_attribute("data-code") or "", error.inner_text()

    def foreign(self) -> list[str]:
        """The URLs of other origins that were requested."""
        origin = urlsplit(self.url).netloc
        return [
            url for url in self.requests if urlsplit(url).netloc != origin and not url.startswith(("data:", "blob:"))
        ]


def flaws(page: Page) -> list[str]:
    """What axe finds against WCAG AA and good practice, each with the first element that it concerns."""
    rules = {"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]}
    report = Axe().run(page, options=rules).response
    contrasts = [rule for rule in report["passes"] + report["violations"] if rule["id"] == "color-contrast"]
    assert contrasts, "axe could not tell the colours"
    return [f"{rule['id']} ({rule['impact']}): {rule['nodes'][0]['html'][:150]}" for rule in report["violations"]]


def percent(score: float | None) -> str:
    """A score as the page shows it."""
    return "none" if score is None else f"{math.floor(100 * score + 0.5)}%"


def scored(answer: object, scores: Sequence[float], **more: Any) -> dict[str, Any]:
    """A candidate with its answer and step scores."""
    steps = [f"Step {k + 1} of the way." for k in range(len(scores))]
    return {"steps": steps, "answer": str(answer), "step_scores": list(scores), **more}


EXAMPLES = ["A close vote", "A slip", "Own scores"]
