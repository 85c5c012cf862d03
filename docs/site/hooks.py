"""Hooks of mkdocs: pages beside docs/, tutorials, links that work on GitHub and on the site, search without a network.

In: the Markdown pages as GitHub renders them, and the notebooks of docs/tutorials. Out: the same pages with links of
the site. A link to a file outside of the site becomes its text, or a link below `repo_url` if mkdocs.yml has one.
"""

import json
import posixpath
import re
import sys
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from mkdocs.utils import get_relative_url

REPOSITORY = Path(__file__).parents[2]
sys.path.insert(0, str(Path(__file__).parent))

from commands_page import commands_page  # noqa: E402  # mkdocs imports a hook without its folder

# Path in the repository → path in the site.
OUTSIDE = {
    "README.md": "repository/readme.md",
    "CONTRIBUTING.md": "repository/contributing.md",
    "tests/README.md": "repository/tests.md",
    "CHANGELOG.md": "repository/changelog.md",
    "charts/spanloom/README.md": "deployment/helm.md",
}
ORIGIN = {site: path for path, site in OUTSIDE.items()}
LINK = re.compile(r"(!?)\[((?:[^\[\]]|!\[[^\]]*\]\([^)]*\))*)\]\(([^)\s]+)\)")
# What the theme loads from a server, for search in a folder; ours is beside this file.
REMOTE_WORKER = "https://unpkg.com/iframe-worker/shim"
CODE = re.compile(r"(^```.*?^```$|`[^`\n]+`)", flags=re.DOTALL | re.MULTILINE)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    for path, site in OUTSIDE.items():
        files.append(File.generated(config, site, content=(REPOSITORY / path).read_text("utf-8")))
    files.append(File.generated(config, "reference/cli.md", content=commands_page()))
    for notebook in [file for file in files if file.src_uri.endswith(".ipynb")]:
        files.remove(notebook)
        site = notebook.src_uri.removesuffix(".ipynb") + ".md"
        files.append(File.generated(config, site, content=as_markdown(json.loads(notebook.content_string))))
        ORIGIN[site] = f"docs/{notebook.src_uri}"
        OUTSIDE[f"docs/{notebook.src_uri}"] = site
    return files


def as_markdown(notebook: dict) -> str:  # type: ignore[type-arg]
    """Cells in their order: text as it is, code between fences."""
    cells = [(cell["cell_type"], "".join(cell["source"])) for cell in notebook["cells"]]
    return "\n\n".join(text if kind == "markdown" else f"```python\n{text}\n```" for kind, text in cells) + "\n"


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Links are relative to the page's place in the repository: `[a](../README.md)` leads to the README's page."""
    source = page.file.src_uri
    folder = posixpath.dirname(ORIGIN.get(source, f"docs/{source}"))

    def rewritten(match: re.Match[str]) -> str:
        image, text, target = match.groups()
        name, hash_mark, anchor = target.partition("#")
        if "://" in target or not name:
            return match[0]
        path = posixpath.normpath(posixpath.join(folder, name))
        site = OUTSIDE.get(path) or path.removeprefix("docs/")
        if files.get_file_from_path(site):
            return f"{image}[{text}]({posixpath.relpath(site, posixpath.dirname(source) or '.')}{hash_mark}{anchor})"
        if not (REPOSITORY / path).exists():
            return match[0]  # mkdocs then stops at it
        return f"[{text}]({config.repo_url.rstrip('/')}/blob/main/{path})" if config.repo_url else text

    parts = CODE.split(markdown)
    # Links in code stay; a link whose text holds code is put together again first.
    outside = [part if index % 2 == 0 else f"\0{index}\0" for index, part in enumerate(parts)]
    return re.sub(r"\0(\d+)\0", lambda code: parts[int(code[1])], LINK.sub(rewritten, "".join(outside)))


TABLE_CODE = re.compile(r"<code>[^<]*</code>")


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """In a cell of a table GitHub shows `a\\|b` as `a|b`; Python's Markdown keeps the backslash."""
    return re.sub(r"<td.*?</td>", lambda cell: TABLE_CODE.sub(_without_backslash, cell[0]), html, flags=re.DOTALL)


def _without_backslash(code: re.Match[str]) -> str:
    return code[0].replace(r"\|", "|")


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    return output.replace(REMOTE_WORKER, get_relative_url("site/search_worker.js", page.url))


def on_post_template(output_content: str, template_name: str, config: MkDocsConfig) -> str:
    return output_content.replace(REMOTE_WORKER, "site/search_worker.js")
