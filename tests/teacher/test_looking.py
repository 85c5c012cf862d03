"""What `inspect --teacher` shows is what the teacher thinks of that token, by a forward pass of its own."""

import json
import math
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

import spanloom
from spanloom.api.scoring import scored
from spanloom.errors import DatasetError
from spanloom.report.progress import Progress
from spanloom.teacher.sources.options import ScoringOptions
from support import warm
from support.chromium import VISIBLE_TEXT_CONTRAST, Browser, chromium, opened
from support.each import each
from support.nightly import NIGHTLY
from support.teachers import documents, expected, write_scored_dataset

K = 5
DOCUMENT = "train/0/11"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Path]:
    """A dataset, its signals, the teacher."""
    folder = tmp_path_factory.mktemp("looking")
    root, model = write_scored_dataset(folder)
    scored(str(root), str(folder / "signals"), ScoringOptions(model=model, top_k=K), Progress.given(False))
    return root, folder / "signals", model


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with chromium(tmp_path_factory.mktemp("chromium")) as started:
        yield started


@pytest.fixture(scope="module")
def page(made: tuple[Path, Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    root, signals, _ = made
    file = tmp_path_factory.mktemp("page") / "page.html"
    spanloom.inspect(root, DOCUMENT, "train/0/2", teacher=signals, html=file)
    return file


def test_each_scored_token_has_what_a_forward_pass_gives(made: tuple[Path, Path, Path]) -> None:
    root, signals, model = made
    (shown,) = spanloom.inspect(root, DOCUMENT, teacher=signals)
    tokens, mask = documents(root)[11]
    logprobs, labels = expected(model, tokens, mask)
    places = [position + 1 for position in np.flatnonzero(mask)]
    assert [number for number, token in enumerate(shown.tokens) if token.score] == places
    for place, label, row in zip(places, labels.tolist(), logprobs, strict=True):
        score = shown.tokens[place].score
        assert score is not None
        assert shown.tokens[place].id == label
        assert score.own == pytest.approx(row[label], abs=6e-4)
        assert [value for _, _, value in score.top] == pytest.approx(np.sort(row)[::-1][:K].tolist(), abs=6e-4)
        for token, _, value in score.top:
            assert value == pytest.approx(row[token], abs=6e-4)
        kept = sum(math.exp(value) for _, _, value in score.top)
        assert math.exp(score.rest) == pytest.approx(1 - kept, abs=2e-3)
        at_least = [0.5, 0.1, 0.01, 0.001, 0][score.level]
        assert math.exp(score.own) >= at_least
        assert score.level == 0 or math.exp(score.own) < [0.5, 0.1, 0.01, 0.001][score.level - 1]


def test_texts_of_tokens_are_those_of_the_tokenizer(made: tuple[Path, Path, Path]) -> None:
    root, signals, _ = made
    vocabulary = spanloom.open_dataset(root).vocabulary
    (shown,) = spanloom.inspect(root, DOCUMENT, teacher=signals)
    texts = {token: text for each in shown.tokens if each.score for token, text, _ in each.score.top}
    assert len(texts) > 20
    for token, text in texts.items():
        if vocabulary.is_special(token):
            assert text == vocabulary.name(token)
        elif text.startswith("⟨"):
            assert bytes.fromhex(text.strip("⟨⟩").replace(" ", "")) == vocabulary.piece(token)
        else:
            assert text.encode() == vocabulary.piece(token)


def test_a_document_without_signals_is_said(made: tuple[Path, Path, Path], tmp_path: Path) -> None:
    """Longer than the teacher's context: 256 tokens of the 388 of this document."""
    root, _, model = made
    small = tmp_path / "small"
    small.mkdir()
    for file in model.iterdir():
        (small / file.name).write_bytes(file.read_bytes())
    config = json.loads((model / "config.json").read_text())
    (small / "config.json").write_text(json.dumps({**config, "max_position_embeddings": 256}))
    scored(str(root), str(tmp_path / "signals"), ScoringOptions(model=small, top_k=2), Progress.given(False))
    (shown,) = spanloom.inspect(root, DOCUMENT, teacher=tmp_path / "signals")
    assert not shown.scored
    assert shown.notes == ("the teacher has no signals of this document",)


def test_signals_of_another_dataset_are_refused(made: tuple[Path, Path, Path], tmp_path: Path) -> None:
    _, signals, _ = made
    other, _ = write_scored_dataset(tmp_path, conversations=3)
    with pytest.raises(DatasetError, match="signals of another dataset"):
        spanloom.inspect(other, teacher=signals)


def test_the_command(made: tuple[Path, Path, Path]) -> None:
    root, signals, _ = made
    words = ("inspect", str(root), DOCUMENT, "--teacher", str(signals))
    (document,) = json.loads(warm.run("spanloom", *words, "--json", env=os.environ).stdout)
    (shown,) = spanloom.inspect(root, DOCUMENT, teacher=signals)
    assert [each and each["own"] for each in document["tokens"]["teacher"]] == [
        token.score and token.score.own for token in shown.tokens
    ]
    first = next(number for number, token in enumerate(shown.tokens) if token.score)
    score = shown.tokens[first].score
    assert score is not None
    labels = warm.run("spanloom", *words, "--labels", env=os.environ).stdout
    (line,) = [line for line in labels.splitlines() if line.split()[:1] == [str(first - 1)]]
    assert f"{score.own:.2f}  {score.top[0][1]} {score.top[0][2]:.2f}" in line
    assert "teacher expected" in warm.run("spanloom", *words, env=os.environ).stdout
    bare = warm.run("spanloom", *words[:3], "--json", env=os.environ)
    assert "teacher" not in json.loads(bare.stdout)[0]["tokens"]


def test_a_click_shows_the_top_k(browser: Browser, made: tuple[Path, Path, Path], page: Path) -> None:
    root, signals, _ = made
    (shown,) = spanloom.inspect(root, DOCUMENT, teacher=signals)
    opened(browser, page)
    panel = browser.find_element(By.ID, "expected")
    assert not panel.is_displayed()
    scored_places = [number for number, token in enumerate(shown.tokens) if token.score]
    for place in scored_places[5:7]:
        if place == scored_places[5]:
            browser.find_element(By.CSS_SELECTOR, f'article.current i[data-n="{place}"]').click()
        else:
            ActionChains(browser).send_keys(Keys.ARROW_RIGHT).perform()
        token = shown.tokens[place]
        score = token.score
        assert score is not None
        assert f"position {place}: log-prob {score.own:.3f}" in panel.text
        rows = [
            [cell.text for cell in row.find_elements(By.TAG_NAME, "td")]
            for row in panel.find_elements(By.CSS_SELECTOR, "tbody tr")
        ]
        assert [(row[2], row[3]) for row in rows[:-1]] == [(str(id), f"{value:.3f}") for id, _, value in score.top]
        assert rows[0][1] == score.top[0][1].replace(" ", "␣").replace("\n", "↵")
        assert rows[-1][1:4] == ["all others", "", f"{score.rest:.3f}"]
    ActionChains(browser).send_keys(Keys.ESCAPE).perform()
    assert not panel.is_displayed()
    assert [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"] == []


SCREENS = [(390, True), (1280, False), *([(390, False), (1280, True)] if NIGHTLY else [])]


@each("screen", SCREENS)
def test_the_page_fits_and_can_be_read(browser: Browser, page: Path, screen: tuple[int, bool]) -> None:
    width, dark = screen
    opened(browser, page, width=width, dark=dark)
    token = browser.find_elements(By.CSS_SELECTOR, "article.current i[data-o]")[3]
    browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", token)
    token.click()
    assert browser.find_element(By.ID, "expected").is_displayed()
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    looked, poor = browser.execute_script(VISIBLE_TEXT_CONTRAST)
    assert looked > 30
    assert poor == []
    grounds = browser.execute_script(
        "return [...document.querySelectorAll('.levels i')].map(i => getComputedStyle(i).backgroundColor)"
    )
    assert len({*grounds}) == 5, "a colour for each level"
    ActionChains(browser).send_keys("p").perform()
    assert not browser.find_element(By.ID, "expected").is_displayed(), "without colours there is no panel"
