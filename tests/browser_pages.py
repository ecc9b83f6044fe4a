"""Pages with the attention explorer in headless Chromium: the browser, and what a reader does with mouse and keys."""

import shutil

import pytest
from waiting import until

WIDTH, HEIGHT = 1200, 1000


@pytest.fixture(scope="module")
def browser():
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed: no browser to test in")
    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if not chromium or not driver:
        pytest.skip("chromium and chromedriver are not installed: no browser to test in")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for option in (
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        f"--window-size={WIDTH},{HEIGHT}",
    ):
        options.add_argument(option)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    with webdriver.Chrome(options=options, service=webdriver.ChromeService(driver)) as opened:
        yield opened


def open_anew(browser, address):
    """Open a page that may be open already with another fragment."""
    browser.get("about:blank")
    browser.get(address)


def complaints(page):
    """What the browser has to say about the page."""
    return [entry for entry in page.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")]


def drawings(page):
    """How often the map was drawn."""
    return int(page.find_element("id", "map").get_attribute("data-ready") or 0)


def wait(page, drawn):
    """Until the map was drawn `drawn` times."""
    until(lambda: drawings(page) >= drawn)


def choose(page, **controls):
    from selenium.webdriver.support.ui import Select

    for name, wanted in controls.items():
        if value(page, name) == str(wanted):
            continue  # nothing would change, and nothing be drawn
        drawn = drawings(page)
        Select(page.find_element("id", name)).select_by_value(str(wanted))
        wait(page, drawn + 1)


def press(page, keys):
    box = page.find_element("id", "explorer")
    for key in keys:
        drawn = drawings(page)
        box.send_keys(key)
        wait(page, drawn + 1)


def text(page, name):
    return page.find_element("id", name).text


def value(page, name):
    return page.find_element("id", name).get_attribute("value")


def point(page, x, y, canvas="map"):
    """Point at a place on a map, counted from its left upper corner."""
    from selenium.webdriver.common.action_chains import ActionChains

    element = page.find_element("id", canvas)
    page.execute_script("arguments[0].scrollIntoView({block: 'center'})", element)
    half = element.size["width"] // 2, element.size["height"] // 2
    ActionChains(page).move_to_element_with_offset(element, int(x) - half[0], int(y) - half[1]).perform()


def downloaded(page, directory, button):
    """The bytes of the file that a click on a button saves."""
    page.execute_cdp_cmd("Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(directory)})
    before = set(directory.iterdir())
    page.find_element("id", button).click()

    def finished():
        return [file for file in set(directory.iterdir()) - before if file.suffix in (".svg", ".png")]

    until(finished)
    return finished()[0].read_bytes()
