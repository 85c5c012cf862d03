"""The service's pages in a real browser: from the datasets to a trace with its steps; content stays text."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium.webdriver.common.by import By

from spanloom.families.traces.build import BuildRequest, build_dataset
from spanloom.families.traces.service.application import traces_application
from spanloom.families.traces.store.ingest import add_traces
from spanloom.families.traces.store.opening import default_url, open_store
from spanloom.families.traces.trace import Trace
from support.chromium import Browser, chromium
from support.http_service import Service, served

HOSTILE = "<img src=x onerror=document.title='ran'><script>document.title='ran'</script>"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with chromium(tmp_path_factory.mktemp("chromium")) as started:
        yield started


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    store = open_store(default_url(tmp_path), create=True)
    steps = [{"i": 5, "type": "first", "content": HOSTILE}, {"i": 1, "type": "second", "content": "two\nlines"}]
    value = {"trace_version": "1.0", "prompt": HOSTILE, "final_answer": "שלום", "steps": steps, "meta": {"k": HOSTILE}}
    add_traces(store, [Trace.model_validate(value)] * 120)
    build_dataset(store, tmp_path, BuildRequest(dataset_name="ü", dataset_version="1", limit=10_000))
    with served(traces_application(store, tmp_path)) as running:
        yield running
    store.close()


def test_from_the_datasets_to_a_trace(browser: Browser, service: Service) -> None:
    browser.get(f"http://127.0.0.1:{service.port}/")
    assert browser.title == "Reasoning traces"
    browser.find_element(By.LINK_TEXT, "ü-1").click()
    assert browser.find_element(By.TAG_NAME, "h1").text == "ü-1"
    browser.find_element(By.LINK_TEXT, "later").click()
    assert browser.find_elements(By.LINK_TEXT, "earlier")
    assert not browser.find_elements(By.LINK_TEXT, "later")
    (first, *_) = browser.find_elements(By.CSS_SELECTOR, "a[href^='/traces/']")
    first.click()
    said = [one.text for one in browser.find_elements(By.TAG_NAME, "pre")]
    assert said[:4] == [HOSTILE, HOSTILE, "two\nlines", "שלום"]
    labels = [one.text for one in browser.find_elements(By.CSS_SELECTOR, ".text p")]
    assert labels[1:3] == ["1 · first · index 5", "2 · second · index 1"]
    assert browser.title == "Trace"
    assert not browser.find_elements(By.TAG_NAME, "img")
    shown = browser.find_element(By.TAG_NAME, "body").get_property("scrollWidth")
    assert shown <= browser.execute_script("return document.documentElement.clientWidth")
    browser.get(f"http://127.0.0.1:{service.port}/docs")
    assert "POST /api/traces/batch" in browser.find_element(By.TAG_NAME, "body").text
    wrong = [entry for entry in browser.get_log("browser") if "favicon" not in entry["message"]]
    assert wrong == []
