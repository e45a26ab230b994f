"""The page of a server without a model: steps are scored by what the candidates have in common."""

import re

from playwright.sync_api import Browser, expect

from tests.browser.harness import Sheet, flaws
from tests.server.harness import serving
from unprm.engines.agreement import AgreementEngine

PROBLEM = "What is half of 12 * 12?"
RIGHT = "12 * 12 = 144.\n\n144 / 2 = 72.\n\nThe answer is 72."
WRONG = "12 * 12 = 144.\n\n144 / 2 = 62.\n\nThe answer is 62."


def test_four_candidates_are_compared_and_the_majority_elects(browser: Browser) -> None:
    with serving(AgreementEngine(64)) as running:
        sheet = Sheet(browser.new_context().new_page(), running.url).open()
        page = sheet.page
        sheet.score(PROBLEM, RIGHT, RIGHT, WRONG, RIGHT)
        expect(page.locator("#legend")).to_contain_text("Not by a model")
        expect(page.locator(".solution").nth(2).locator(".chip")).to_have_text(["3 of 3", "0 of 3", ""])
        expect(page.locator(".side")).to_have_text(re.compile("72 elected"))
        assert "lead 2 candidates" in sheet.tile("majority")
        page.locator("#aggregate").evaluate("node => { node.value = 'mean'; node.dispatchEvent(new Event('change')); }")
        sheet.settled()
        sheet.voted()
        assert sheet.elected("majority") == "72"
        assert flaws(page) == []
        sheet.score(PROBLEM, RIGHT, WRONG)
        assert "expected at least 4" in sheet.complaint()[1]
        page.context.close()
