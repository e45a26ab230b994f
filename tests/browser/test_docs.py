"""The API's documentation in the browser: it comes from this server alone, and its forms work."""

import re
from typing import Literal

import pytest
from playwright.sync_api import Browser, expect

from tests.browser.harness import Sheet
from tests.server.harness import Running, serving


def test_an_operation_is_tried_with_a_key_and_nothing_comes_from_elsewhere(browser: Browser) -> None:
    with serving(api_key="secret-key") as locked:
        sheet = Sheet(browser.new_page(), locked.url)
        sheet.page.goto(f"{locked.url}/docs")
        sheet.page.get_by_role("button", name="Authorize").click()
        sheet.page.get_by_label("auth-bearer-value").fill("secret-key")
        sheet.page.get_by_role("button", name="Apply credentials").click()
        sheet.page.get_by_role("button", name="Close", exact=True).click()
        operation = sheet.page.locator(".opblock", has_text="/vote/majority")
        operation.locator(".opblock-summary-control").click()
        operation.get_by_role("button", name="Try it out").click()
        operation.get_by_role("button", name="Execute").click()
        expect(operation.locator(".live-responses-table .response .response-col_status")).to_have_text("200")
        sheet.page.close()
    assert sheet.complaints == []
    assert sheet.foreign() == []
    assert not any("secret-key" in url for url in sheet.requests)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_operations_have_groups_and_titles_and_the_page_leads_back(
    browser: Browser, running: Running, scheme: Literal["light", "dark"]
) -> None:
    page = browser.new_page(color_scheme=scheme)
    page.goto(f"{running.url}/docs")
    expect(page.locator(".opblock-tag")).to_contain_text(["Scores", "Votes", "The server"])
    expect(page.locator(".opblock", has_text="/score_steps")).to_contain_text("Scores the steps of every solution")
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    ink = page.evaluate("getComputedStyle(document.querySelector('.opblock-tag')).color")
    assert (_brightness(ground) > _brightness(ink)) == (scheme == "light")
    page.get_by_role("link", name="Scores and votes").click()
    expect(page.get_by_role("heading", name="Elected answer")).to_be_visible()
    page.close()


def _brightness(colour: str) -> float:
    return sum(map(float, re.findall(r"\d+", colour)[:3]))
