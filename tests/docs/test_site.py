"""The site of `make docs`: it builds without a broken link or anchor, and loads nothing from a server.

In: mkdocs.yml, docs/, and the pages beside docs/ that the site has too. Out: the site in a folder, built once.
"""

import json
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.support.wait import WebDriverWait

from conftest import REPOSITORY
from support.chromium import chromium

QUESTIONS = (
    "How do I bring my chat data?", "For which models?", "How do I train?", "How do I run it on Kubeflow?",
    "What is promised when it is killed?",
)  # fmt: skip


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = build(REPOSITORY / "mkdocs.yml", folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def build(configuration: Path, folder: Path) -> "subprocess.CompletedProcess[str]":
    # Not --quiet: with it mkdocs counts no warnings, and --strict stops at nothing.
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "-f", configuration, "-d", folder]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    return subprocess.run(command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, check=False)


class Loaded(HTMLParser):
    """Addresses that a browser loads with the page: not links that a reader follows."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        address = values.get("href") if tag == "link" else values.get("src")
        self.addresses += [address] if address else []


def test_pages_load_nothing_from_a_server(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 30
    for page in pages:
        parser = Loaded()
        parser.feed(page.read_text("utf-8"))
        assert len(parser.addresses) >= 3
        for address in parser.addresses:
            assert "://" not in address, (page, address)
            assert not address.startswith("//"), (page, address)
            if page.name != "404.html" and not address.startswith("data:"):
                assert (page.parent / address.partition("?")[0]).exists(), (page, address)
    for style in site.rglob("*.css"):
        assert not re.search(r"url\(['\"]?(?:https?:)?//", style.read_text("utf-8")), style


def test_the_front_page_answers_the_five_questions(site: Path) -> None:
    page = (site / "index.html").read_text("utf-8")
    for question in QUESTIONS:
        row = re.search(rf"<td>{re.escape(question)}</td>\s*<td>(.*?)</td>", page, re.DOTALL)
        assert row, question
        assert re.search(r'<a href="[^"#]+\.html', row[1]), question


def test_the_reference_has_the_docstrings(site: Path) -> None:
    page = (site / "reference/training.html").read_text("utf-8")
    assert 'id="spanloom.training.pytorch.DocumentDataset"' in page
    assert "Sample k: document k whole" in page


def test_the_search_index_has_every_page(site: Path) -> None:
    index = (site / "search/search_index.js").read_text("utf-8")
    pages = {page.relative_to(site).as_posix() for page in site.rglob("*.html")} - {"404.html"}
    assert {page for page in pages if f'"location":"{page}"' not in index} == set()


def test_no_cell_of_a_table_shows_the_escape_of_a_bar(site: Path) -> None:
    spans = [
        (page.name, code)
        for page in site.rglob("*.html")
        for cell in re.findall(r"<td.*?</td>", page.read_text("utf-8"), re.DOTALL)
        for code in re.findall(r"<code>([^<]*)</code>", cell)
    ]
    assert ("convert.html", "&lt;|im_end|&gt;") in spans, "written with a backslash, which GitHub takes away"
    assert [span for span in spans if r"\|" in span[1]] == []


def test_every_command_has_its_options_on_a_page(site: Path) -> None:
    page = (site / "reference/cli.html").read_text("utf-8")
    listed = json.loads((REPOSITORY / "tests/cli/options.json").read_text("utf-8"))
    assert len(listed) > 80
    for command, options in listed.items():
        section = page.partition(f'<h2 id="{command.replace(" ", "-")}">')[2].partition("<h2 ")[0]
        assert section, command
        for option in options:
            if option.startswith("--"):
                assert option.split("/")[0] in section, (command, option)


@pytest.mark.nightly  # a browser
def test_pages_fit_a_phone(site: Path, tmp_path: Path) -> None:
    """Tables and code scroll inside of themselves; the page does not scroll sideways."""
    wide = {}
    with chromium(tmp_path / "profile") as browser:
        browser.execute_cdp_cmd(
            "Emulation.setDeviceMetricsOverride", {"width": 390, "height": 844, "deviceScaleFactor": 1, "mobile": True}
        )
        for page in sorted(site.rglob("*.html")):
            browser.get(page.as_uri())
            width = browser.execute_script("return document.documentElement.scrollWidth")
            if width > 390:
                wide[page.relative_to(site).as_posix()] = width
    assert wide == {}


@pytest.mark.nightly  # a browser
def test_search_works_from_a_folder(site: Path, tmp_path: Path) -> None:
    with chromium(tmp_path / "profile") as browser:
        browser.get((site / "training/plans.html").as_uri())
        browser.execute_script("document.querySelector('label[for=__search]').click()")
        browser.find_element(By.CSS_SELECTOR, "input[data-md-component=search-query]").send_keys("windows question")
        wait = WebDriverWait(browser, 60)
        links = wait.until(lambda page: page.find_elements(By.CSS_SELECTOR, ".md-search-result__link"))
        assert any("training/plans.html" in (link.get_attribute("href") or "") for link in links)


@pytest.mark.nightly  # a build more
@pytest.mark.parametrize("fault", ["[a](../convert.md#no-such-heading)", "[a](no-such-page.md)"])
def test_a_broken_link_or_anchor_stops_the_build(fault: str, tmp_path: Path) -> None:
    for path in REPOSITORY.iterdir():  # links may lead to any of them
        if path.name not in ("docs", "mkdocs.yml", "build"):
            (tmp_path / path.name).symlink_to(path)
    subprocess.run(["cp", "-r", REPOSITORY / "docs", tmp_path / "docs"], check=True)
    configuration = tmp_path / "mkdocs.yml"
    configuration.write_bytes((REPOSITORY / "mkdocs.yml").read_bytes())
    page = tmp_path / "docs/deployment/slurm.md"
    page.write_text(f"{page.read_text('utf-8')}\n{fault}\n")
    assert build(configuration, tmp_path / "site").returncode != 0
