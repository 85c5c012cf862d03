"""Both pages in a real browser: stepping, searching, labels, and content that wants to be code and stays text."""

import json
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from conftest import REPOSITORY, Cli
from support.chromium import VISIBLE_TEXT_CONTRAST, Browser, chromium, opened
from support.each import each
from support.nightly import NIGHTLY


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with chromium(tmp_path_factory.mktemp("chromium")) as started:
        yield started


def press(browser: Browser, keys: str) -> None:
    ActionChains(browser).send_keys(keys).perform()


def current(browser: Browser) -> str:
    (article,) = [one for one in browser.find_elements(By.TAG_NAME, "article") if one.is_displayed()]
    return article.find_element(By.TAG_NAME, "h2").text


def listed(browser: Browser) -> list[str]:
    return [one.text for one in browser.find_elements(By.CSS_SELECTOR, "nav .at") if one.is_displayed()]


@pytest.fixture(scope="module")
def demo_page(demo: Path, tmp_path_factory: pytest.TempPathFactory, cli: Cli) -> Path:
    page = tmp_path_factory.mktemp("page") / "inspect.html"
    places = ("train/1/4", "train/0/0", "train/0/15", "valid/2/6", "train/0/8")
    done = cli("inspect", demo, *places, "--html", page)
    assert done.returncode == 0, done.stderr
    return page


@pytest.fixture(scope="module")
def hostile_page(hostile: Path, tmp_path_factory: pytest.TempPathFactory, cli: Cli) -> Path:
    page = tmp_path_factory.mktemp("page") / "inspect.html"
    assert cli("inspect", hostile, "--pick", "first", "--count", 99, "--html", page).returncode == 0
    return page


@pytest.fixture(scope="module")
def chess_pages(tmp_path_factory: pytest.TempPathFactory, cli: Cli) -> dict[str, Path]:
    """What validation finds in prepared games, counts of them, and samples."""
    folder = tmp_path_factory.mktemp("chess")
    games = REPOSITORY / "tests/frozen/prepared_games"
    pages = {name: folder / f"{name}.html" for name in ("validate", "report", "inspect")}
    for name, page in pages.items():
        words = (name,) if name == "validate" else ("chess", name)
        done = cli(*words, games, "--html", page)
        assert done.returncode == 0, done.stderr
    return pages


SCREENS = [  # each page at each width by day, in light or dark
    (page, width, dark)
    for number, page in enumerate(("validate", "report", "inspect"))
    for at, width in enumerate((390, 768, 1280))
    for dark in (False, True)
    if NIGHTLY or (number + at) % 2 == dark
]


@each("screen", SCREENS)
def test_pages_of_chess_fit_their_screen_and_can_be_read(
    browser: Browser, chess_pages: dict[str, Path], screen: tuple[str, int, bool]
) -> None:
    page, width, dark = screen
    opened(browser, chess_pages[page], width=width, dark=dark)
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    looked, poor = browser.execute_script(VISIBLE_TEXT_CONTRAST)
    assert looked > 30
    assert poor == []
    for table in browser.find_elements(By.TAG_NAME, "table"):
        around = table.find_element(By.XPATH, "..")
        if around.get_property("scrollWidth") > around.get_property("clientWidth"):
            assert width == 390, "nothing is cut off on larger screens"
            hint = browser.execute_script("return getComputedStyle(arguments[0], '::before').content", around)
            assert "scroll sideways" in hint


@each("page", ["inspect", "the demo's"])
def test_only_tables_wider_than_a_narrow_screen_have_the_hint(
    browser: Browser, demo: Path, chess_pages: dict[str, Path], page: str
) -> None:
    opened(browser, chess_pages.get(page, demo / "report.html"), width=390)
    boxes = browser.execute_script(
        "return [...document.querySelectorAll('.wide')].map(box =>"
        " [box.scrollWidth > box.clientWidth, getComputedStyle(box, '::before').fontSize])"
    )
    assert {tuple(box) for box in boxes} <= {(True, "12px"), (False, "0px")}
    assert boxes


def test_keys_step_through_documents(browser: Browser, demo_page: Path) -> None:
    opened(browser, demo_page)
    order = ["train/01/4", "train/00/0", "train/00/15", "valid/02/6", "train/00/8"]
    assert listed(browser) == order
    seen = [current(browser)]
    for _ in range(5):
        press(browser, "j")
        seen.append(current(browser))
    assert seen == [*order, order[-1]], "the last stays"
    press(browser, "kk")
    assert current(browser) == order[2]
    assert browser.current_url.endswith("#d3")
    assert browser.find_element(By.CSS_SELECTOR, "nav [aria-current=true] .at").text == order[2]
    browser.find_element(By.CSS_SELECTOR, "nav li:nth-child(2) a").click()
    assert current(browser) == order[1]
    browser.get(demo_page.as_uri() + "#d4")
    browser.refresh()
    assert current(browser) == order[3], "an address names a document"


def test_search_finds_words_that_run_over_tokens_and_steps_through_them(browser: Browser, demo_page: Path) -> None:
    opened(browser, demo_page)
    press(browser, "/")
    assert browser.switch_to.active_element.get_attribute("id") == "find"
    press(browser, "verminderter grundwert")
    assert listed(browser) == ["train/01/4"]
    assert browser.find_element(By.ID, "found").text == "1 of 1"
    found = browser.execute_script("return [...CSS.highlights.get('here')].map((range) => range.toString())")
    assert found == ["verminderter Grundwert"]

    box = browser.find_element(By.ID, "find")
    box.clear()
    box.send_keys("You are ChatGPT")
    assert browser.find_element(By.ID, "found").text == "1 of 5"
    box.send_keys(Keys.ENTER)
    assert current(browser) == "train/00/0"
    box.send_keys(Keys.ESCAPE)
    assert len(listed(browser)) == 5
    press(browser, "j")
    assert current(browser) == "train/00/15", "keys step again once the search is left"
    box.send_keys("no such words")
    assert browser.find_element(By.ID, "found").text == "nothing"


def test_labels_are_laid_out_as_they_lie_on_disk(browser: Browser, demo: Path, demo_page: Path) -> None:
    opened(browser, demo_page)
    press(browser, "l")
    table = browser.execute_script(
        "return [...document.querySelectorAll('article.current .labels tbody tr')]"
        ".map((row) => [...row.cells].map((cell) => cell.textContent))"
    )
    index = (demo / "train/shard_01_tokens.idx").read_bytes()
    lengths = np.frombuffer(index, dtype="<i4", count=5, offset=34)
    at = slice(int(lengths[:4].sum()), int(lengths.sum()))
    mask = np.fromfile(demo / "train/shard_01_lossmask.bin", dtype=np.uint8)[at].tolist()
    span = np.fromfile(demo / "train/shard_01_span.bin", dtype=np.uint8)[at].tolist()
    names = ("context", "analysis", "final")
    assert [(row[0], row[3], row[4]) for row in table] == [
        (str(t), str(m), f"{s} {names[s]}") for t, (m, s) in enumerate(zip(mask, span, strict=True))
    ]
    assert [row[2] for row in table] == [*(row[1] for row in table[1:]), "–"], "the label is the next token"
    assert table[-3][2] == "<|return|>"
    assert not browser.find_element(By.CSS_SELECTOR, "article.current section").is_displayed()
    press(browser, "l")
    assert browser.find_element(By.CSS_SELECTOR, "article.current section").is_displayed()


def test_toggles_say_whether_they_are_on(browser: Browser, demo_page: Path) -> None:
    opened(browser, demo_page)
    for key, name in (("t", "tokens"), ("i", "ids"), ("l", "labels")):
        button = browser.find_element(By.CSS_SELECTOR, f"[data-show={name}]")
        assert button.get_attribute("aria-pressed") == "false"
        press(browser, key)
        assert button.get_attribute("aria-pressed") == "true"
        button.click()
        assert button.get_attribute("aria-pressed") == "false"


def assert_only_text(browser: Browser, scripts: int) -> None:
    """Nothing of the content became an element, ran, or asked the network for anything."""
    assert "owned" not in browser.title
    assert len(browser.find_elements(By.TAG_NAME, "script")) == scripts
    assert browser.find_elements(By.CSS_SELECTOR, "img, iframe, object, link, base, [onload], [onerror]") == []
    assert browser.execute_script("return performance.getEntriesByType('resource').length") == 0
    assert [line for line in browser.get_log("browser") if line["level"] != "INFO"] == []
    source = browser.execute_script("return document.body.textContent")
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", source)


def test_content_stays_text(browser: Browser, hostile_page: Path) -> None:
    opened(browser, hostile_page)
    assert_only_text(browser, scripts=1)
    said = browser.execute_script("return document.querySelector('main').textContent")
    for wanted in (
        "<script>document.title = 'owned'</script><img src=x onerror=",
        "</style></script><!-- --><svg onload=alert(1)>",
        "␛[31;1mred␛[0m␛]0;owned␇",
        "abc⟨U+202E⟩def⟨U+202C⟩",
        "so <|end|><|start|>assistant<|channel|>final<|message|>it ends",
        "می‌خواهم 👩‍🚀 ☃ 𒀀",
    ):
        assert f"say {wanted}" in said
    press(browser, "til")  # every view of it, laid out by the script
    assert_only_text(browser, scripts=1)
    ligatures = browser.execute_script("return getComputedStyle(document.querySelector('i.s')).fontVariantLigatures")
    assert ligatures == "none", "some fonts would draw <| as one sign"
    boxed = browser.execute_script("return [...document.querySelectorAll('section i.s')].map((one) => one.textContent)")
    assert boxed.count("<|end|>") == 6 * 2 + 1, "special tokens are boxed; letters that look like them are not"


def test_a_script_that_got_into_the_page_would_not_run(browser: Browser, hostile_page: Path, tmp_path: Path) -> None:
    """The second net: were escaping to fail, the policy would still not let it run."""
    page = tmp_path / "broken.html"
    page.write_text(hostile_page.read_text("utf-8").replace("<main>", "<main><script>document.title='owned'</script>"))
    opened(browser, page)
    assert browser.title != "owned"
    assert any("Content Security Policy" in line["message"] for line in browser.get_log("browser"))


def test_the_report_of_hostile_content_is_text_and_says_why_a_row_was_refused(browser: Browser, hostile: Path) -> None:
    opened(browser, hostile / "report.html")
    assert_only_text(browser, scripts=0)
    said = browser.find_element(By.TAG_NAME, "main").text
    assert "Clean" in said
    assert "role_unknown" in said
    assert "<script>document.title = 'owned'</script>" in said
    assert json.loads((hostile / "report.json").read_bytes())["rejects"]["total"] == 1


@each("dark", [False, True])
@each("page", ["inspect", "report"])
def test_text_has_contrast_in_light_and_dark(
    browser: Browser, demo: Path, demo_page: Path, page: str, dark: bool
) -> None:
    opened(browser, demo_page if page == "inspect" else demo / "report.html", dark=dark)
    ground = browser.execute_script("return getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, re.findall(r"\d+", ground))) < 3 * 128) == dark
    looked, poor = browser.execute_script(VISIBLE_TEXT_CONTRAST)
    assert looked > 50
    assert poor == []


@each("width", [360, 768, 1400])
@each("page", ["inspect", "labels", "report"])
def test_no_page_is_wider_than_its_screen(browser: Browser, demo: Path, demo_page: Path, page: str, width: int) -> None:
    opened(browser, demo / "report.html" if page == "report" else demo_page, width=width)
    if page == "labels":
        press(browser, "l")
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width


def test_every_plot_has_a_name_and_headings_do_not_skip(browser: Browser, demo: Path) -> None:
    opened(browser, demo / "report.html")
    plots: list[Any] = browser.find_elements(By.CSS_SELECTOR, "svg.plot")
    assert len(plots) == 3
    assert all(plot.get_attribute("role") == "img" and plot.get_attribute("aria-label") for plot in plots)
    levels = [int(one.tag_name[1]) for one in browser.find_elements(By.CSS_SELECTOR, "h1, h2, h3")]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(b <= a + 1 for a, b in pairwise(levels))
    ids = browser.execute_script("return [...document.querySelectorAll('[id]')].map((one) => one.id)")
    assert len(ids) == len(set(ids))
