"""Chromium without a window, driven by its own driver."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from selenium import webdriver
from selenium.webdriver.support.ui import WebDriverWait

from support.requirements import CHROMIUM, absent

Browser = webdriver.Chrome

_FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage",
)  # fmt: skip


VISIBLE_TEXT_CONTRAST = """
const channel = (v) => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
const luminance = ([r, g, b]) => 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
const parse = (text) => text.match(/[\\d.]+/g).map(Number);
const ground = (node) => {
  for (let at = node; at; at = at.parentElement) {
    const colour = parse(getComputedStyle(at).backgroundColor);
    if (colour.length === 3 || colour[3] === 1) return colour;
  }
  return [255, 255, 255];
};
const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT), poor = [];
let looked = 0;
while (walker.nextNode()) {
  const element = walker.currentNode.parentElement;
  if (!walker.currentNode.data.trim() || element.closest("script, style, svg") || !element.checkVisibility()) continue;
  const one = luminance(parse(getComputedStyle(element).color)), two = luminance(ground(element));
  const contrast = (Math.max(one, two) + 0.05) / (Math.min(one, two) + 0.05);
  looked += 1;
  if (contrast < 4.5) poor.push([contrast, element.className, walker.currentNode.data.slice(0, 20)]);
}
return [looked, poor];
"""
"""Counts texts that are seen, and lists those whose contrast is below 4.5."""


@contextmanager
def chromium(profile: Path) -> Iterator[Browser]:
    """A browser with a fresh profile in the folder `profile`, which keeps what pages log."""
    program, driver = shutil.which("chromium") or shutil.which("google-chrome"), shutil.which("chromedriver")
    if not program or not driver:
        absent(CHROMIUM)
    options = webdriver.ChromeOptions()
    options.binary_location = program
    for flag in (*_FLAGS, f"--user-data-dir={profile}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    with webdriver.Chrome(options=options, service=webdriver.ChromeService(driver)) as browser:
        yield browser


def opened(browser: Browser, page: Path, *, width: int = 1200, dark: bool = False) -> Browser:
    """The browser with a page, at a width and in a colour scheme.

    `get` may return before a loaded machine has begun to load the page: whoever looks then sees the one before it.
    """
    scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
    size = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    browser.get("about:blank")
    browser.get(page.as_uri())
    loaded = f"return location.href.startsWith({page.as_uri()!r}) && document.readyState === 'complete'"
    WebDriverWait(browser, 60).until(lambda _: browser.execute_script(loaded))
    return browser
