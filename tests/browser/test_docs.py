"""The API's documentation in the browser: it comes from this server alone, and its forms work."""

from playwright.sync_api import Browser, expect

from tests.browser.harness import Sheet
from tests.server.harness import serving


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
