"""Whatever a value holds, a page shows it as text."""

import pytest

from spanloom.report.pages.texts import TextSection, texts_page

MARKUP = "<script>document.title = 'owned'</script><img src=x onerror=\"alert(1)\">&amp;"


@pytest.mark.parametrize("place", ["title", "path", "heading", "text", "label", "column", "cell", "after", "figure"])
def test_markup_in_a_value_is_text_wherever_it_stands(place: str) -> None:
    values = dict.fromkeys(("title", "path", "heading", "text", "label", "column", "cell", "after", "figure"), "plain")
    values[place] = MARKUP
    section = TextSection(
        heading=values["heading"],
        texts=[(values["label"], values["text"])],
        columns=[values["column"]],
        rows=[[(values["cell"], None)]],
        after=values["after"],
    )
    path = [(values["path"], "/")]
    page = texts_page(values["title"], path=path, sections=[section], figures=[("documents", values["figure"])])
    assert "&lt;script&gt;document.title = &#39;owned&#39;&lt;/script&gt;&lt;img src=x" in page
    assert "&amp;amp;" in page
    assert "<script" not in page
    assert "<img" not in page
