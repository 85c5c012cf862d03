"""Tools: the registries that samples name, and the lists that they carry.

In: the registries of the package, a folder of others, or an inline list. Out: for each tool the parameters that its
calls are checked against, and the list of tools for a chat template.

A registry is a JSON file of the form `{"version": NAME, "tools": [{"type": "function", "function": {…}}, …]}`. For an
opaque registry only the name is known: calls of its tools are not checked.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from spanloom.errors import SourceError
from spanloom.families.toolcalls.format.tables import mapping

_PACKAGED = "spanloom.families.toolcalls"

_TYPES: dict[str, frozenset[type]] = {
    "string": frozenset({str}),
    "number": frozenset({int, float}),
    "integer": frozenset({int}),
    "boolean": frozenset({bool}),
    "array": frozenset({list}),
    "object": frozenset({dict}),
    "null": frozenset({type(None)}),
}


class Parameter(NamedTuple):
    """One parameter of a tool.

    types    the allowed Python types of a value parsed from JSON; None for any
    allowed  the allowed values (`enum`); None for any
    """

    name: str
    required: bool
    types: frozenset[type] | None
    allowed: Sequence[Any] | None

    def accepts(self, value: Any) -> bool:
        if self.types is not None and type(value) not in self.types and not _is_long(value, self.types):
            return False
        if self.allowed is None:
            return True
        # True == 1 in Python, but not in JSON.
        return any(value == choice and isinstance(value, bool) == isinstance(choice, bool) for choice in self.allowed)


def _is_long(value: Any, types: frozenset[type]) -> bool:
    """Whether the fast parser may have turned an integer beyond 64 bits into this float."""
    return int in types and isinstance(value, float) and abs(value) >= 2**63


Parameters = Mapping[str, tuple[Parameter, ...]]
"""Tool → its parameters, by name."""


@dataclass(frozen=True, kw_only=True)
class Registries:
    """The registries in which a sample's `tools` name is looked up.

    known    name → the parameters of its tools; None for an opaque registry
    listed   name → its tools in the form for a chat template; without opaque registries
    files    name → the JSON value of its file
    """

    known: Mapping[str, Parameters | None]
    listed: Mapping[str, Sequence[Mapping[str, Any]]]
    files: Mapping[str, Any]
    _inline: dict[bytes, Parameters] = field(default_factory=dict, compare=False, repr=False)

    def inline(self, tools: Sequence[Any]) -> Parameters:
        """The parameters of the tools of an inline list. Results are cached: many samples have the same list."""
        try:
            key = orjson.dumps(tools)
        except TypeError:  # an integer beyond 64 bits
            return parameters_of(tools)
        parameters = self._inline.get(key)
        if parameters is None:
            if len(self._inline) >= 1024:
                self._inline.clear()
            parameters = self._inline[key] = parameters_of(tools)
        return parameters

    def for_template(self, tools: Any) -> Sequence[Mapping[str, Any]] | None:
        """The tools that a chat template gets for the `tools` of a sample; None for opaque, unknown or no tools."""
        if isinstance(tools, str):
            return self.listed.get(tools)
        return tools if isinstance(tools, list) else None


def parameters_of(tools: Sequence[Any]) -> Parameters:
    """Tool → parameters for a list of tools. Invalid entries are skipped; `rules` reports them."""
    parameters = {}
    for tool in tools:
        function = tool.get("function", tool) if isinstance(tool, dict) else None
        if isinstance(function, dict) and isinstance(function.get("name"), str) and function["name"]:
            parameters[function["name"]] = tuple(_parameters(function.get("parameters")))
    return parameters


def _parameters(schema: Any) -> list[Parameter]:
    schema = schema if isinstance(schema, dict) else {}
    properties, stated = mapping(schema, "properties"), schema.get("required")
    required = {name for name in stated if isinstance(name, str)} if isinstance(stated, list) else set()
    parameters = []
    for name in sorted(properties.keys() | required):
        declared = mapping(properties, name)
        types = declared.get("type")
        types = [types] if isinstance(types, str) else types if isinstance(types, list) else []
        # A type that JSON Schema does not know is ignored: any value is accepted.
        known = (
            frozenset[type]().union(*(_TYPES[item] for item in types))
            if types and all(isinstance(item, str) and item in _TYPES for item in types)
            else None
        )
        allowed = declared.get("enum")
        parameters.append(
            Parameter(name, name in required, known, tuple(allowed) if isinstance(allowed, list) else None)
        )
    return parameters


def load_registries(folder: Path | None = None) -> Registries:
    """Loads the registries of the package and those of a folder of JSON files, which take precedence.

    `opaque.json` is a list of names. Raises SourceError if the folder is missing or a file is not a valid registry.
    """
    texts = {
        entry.name: entry.read_bytes()
        for entry in (resources.files(_PACKAGED) / "registries").iterdir()
        if entry.name.endswith(".json")
    }
    opaque = list(json.loads(texts.pop("opaque.json")))
    known = {name.removesuffix(".json"): json.loads(text) for name, text in sorted(texts.items())}
    if folder is not None:
        if not folder.is_dir():
            raise SourceError("the folder of tools is missing", where=str(folder), remedy="give a folder of JSON files")
        for path in sorted(folder.glob("*.json")):
            value = _json(path)
            if path.name == "opaque.json":
                opaque += [name for name in value if isinstance(name, str)] if isinstance(value, list) else []
            elif isinstance(value, dict) and isinstance(value.get("tools"), list):
                version = value.get("version")
                known[version if isinstance(version, str) and version else path.stem] = value
            else:
                raise SourceError(
                    "not a registry of tools", where=str(path), remedy='give {"version": NAME, "tools": […]}'
                )
    return Registries(
        known={
            **{name: parameters_of(value["tools"]) for name, value in known.items()},
            **{name: None for name in opaque if name not in known},
        },
        listed={name: value["tools"] for name, value in known.items()},
        files=known,
    )


def _json(path: Path) -> Any:
    if not path.is_file():
        raise SourceError("not a regular file", where=str(path), remedy="take it out of the folder")
    try:
        return json.loads(path.read_bytes())
    except (ValueError, RecursionError) as fault:
        raise SourceError(f"the file is not JSON: {fault}", where=str(path), remedy="fix it") from None
