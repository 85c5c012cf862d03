"""All requests of a service, as a page without external resources.

In: its OpenAPI schema. Out: HTML.
"""

from typing import Any

from spanloom.report.pages.texts import Link, TextSection, texts_page

_METHODS = ("get", "post", "put", "patch", "delete")


def docs_page(schema: dict[str, Any]) -> str:
    """A table of paths per tag, with their methods, parameters and answers."""
    rows: dict[str, list[list[Link]]] = {}
    for path, item in schema["paths"].items():
        for method in _METHODS:
            if (operation := item.get(method)) is None:
                continue
            taken = [f"{parameter['name']} ({parameter['in']})" for parameter in operation.get("parameters", ())]
            if "requestBody" in operation:
                taken.append("a body of JSON")
            rows.setdefault((operation.get("tags") or ["other"])[0], []).append(
                [
                    (f"{method.upper()} {path}", None),
                    (" ".join(operation.get("description", operation.get("summary", "")).split()), None),
                    (", ".join(taken), None),
                    (", ".join(operation["responses"]), None),
                ]
            )
    columns = ("request", "what it does", "takes", "answers")
    return texts_page(
        schema["info"]["title"],
        path=[("all requests", None), ("openapi.json", "/openapi.json")],
        sections=[TextSection(heading=tag, columns=columns, rows=lines) for tag, lines in rows.items()],
    )
