"""JSON Schemas of the parameters of functions: types by other names, keys that a render ignores, padding.

In: `parameters` of a tool, arguments of a call. Out: the schema with JSON Schema's types; keys that openai-harmony does
not write; schemas and arguments without the nulls that Arrow writes for absent keys.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from spanloom.conversations.turns import says_nothing


def not_rendered(schema: Any, shown: frozenset[str] = frozenset()) -> Iterator[tuple[str, Any]]:
    """Keys of a schema, with values, that openai-harmony 0.0.8 ignores when it writes parameters as TypeScript.

    `shown`: the keys that are written besides the type; they depend on where the schema is. Servers render with
    openai-harmony too, so such keys refuse no record; they stay in the row and are counted.
    """
    if not isinstance(schema, dict):
        return
    variants, type_ = schema.get("oneOf"), schema.get("type")
    if isinstance(variants, list):
        # A property's own text replaces the text of its first variant.
        description = schema.get("description") if "title" in shown else None
        for number, variant in enumerate(variants):
            yield from not_rendered(
                variant, _OF_VARIANT - {"description"} if description and not number else _OF_VARIANT
            )
        shown -= {"nullable"}
    elif type_ == "object":
        shown |= {"description", "properties", "required"}
        properties = schema.get("properties")
        for inner in properties.values() if isinstance(properties, dict) else ():
            yield from not_rendered(inner, _OF_PROPERTY)
    elif type_ == "array":
        shown |= {"items"}
        yield from not_rendered(schema.get("items"))
    elif type_ == "string":
        shown |= {"enum"}
    for key, value in schema.items():
        if key in ("enum", "examples") and key in shown:
            value = [item for item in value if not isinstance(item, str)] if isinstance(value, list) else value
        elif key in ("type", "oneOf") or key in shown:
            continue
        if not says_nothing(value):
            yield key, value


def not_rendered_keys(schema: Any) -> Iterator[str]:
    """The names under which these keys are counted: `parameters.pattern`; `parameters.other` for unknown keys."""
    for key, _ in not_rendered(schema):
        yield f"parameters.{key if key in _SCHEMA_KEYS else 'other'}"


_SCHEMA_KEYS = frozenset(
    {
        "$defs", "$ref", "additionalProperties", "allOf", "anyOf", "const", "default", "definitions", "description",
        "enum", "examples", "format", "items", "maxItems", "maxLength", "maximum", "minItems", "minLength", "minimum",
        "not", "nullable", "pattern", "properties", "required", "title",
    }
)  # fmt: skip
"""Keys that are counted by name. All other keys can have any name, such as those of parameters."""
_OF_VARIANT = frozenset({"description", "default", "nullable"})
_OF_PROPERTY = _OF_VARIANT | {"title", "examples"}


_TYPES = {
    "str": "string", "text": "string", "int": "integer", "long": "integer", "float": "number", "double": "number",
    "bool": "boolean", "list": "array", "tuple": "array", "set": "array", "dict": "object", "map": "object",
}  # fmt: skip
"""Type names of Python and other languages → types of JSON Schema."""


def json_schema(schema: Any) -> Any:
    """Renames a schema's types, of Python or in capital letters, to those of JSON Schema.

    `{"type": "dict", "properties": {"n": {"type": "int"}}}` → `{"type": "object", "properties": {"n": {"type":
    "integer"}}}`. Any other value is unchanged.
    """
    if isinstance(schema, list):
        return [json_schema(inner) for inner in schema]
    if not isinstance(schema, dict):
        return schema
    named = {key: json_schema(value) if key in _HOLD_SCHEMAS else value for key, value in schema.items()}
    if isinstance(properties := schema.get("properties"), dict):
        named["properties"] = {key: json_schema(value) for key, value in properties.items()}
    if isinstance(name := schema.get("type"), str):
        named["type"] = _TYPES.get(name.lower(), name.lower() if name.isupper() else name)
    return named


_HOLD_SCHEMAS = ("items", "oneOf", "anyOf", "allOf", "additionalProperties")


_OF_NAMES = ("properties", "patternProperties", "$defs", "definitions")
_MAY_BE_NULL = ("default", "const", "example")
"""Keys of a schema whose null is a value."""


_HOLD_VALUES = (*_MAY_BE_NULL, "enum", "examples")


def without_padding(schema: Any, *, named: bool = False) -> tuple[Any, int]:
    """A schema without the nulls of absent keys, and how many were removed.

    `Dataset.to_json` writes every struct with the keys of all structs of its column. `{"properties": {"word": {"type":
    "string", "enum": null}, "zone": null}}` → `{"properties": {"word": {"type": "string"}}}`, 2. `default: null` and
    null within `enum` stay. `named`: the keys are names of parameters.
    """
    if isinstance(schema, list):
        pairs = [without_padding(item) for item in schema]
        return [item for item, _ in pairs], sum(count for _, count in pairs)
    if not isinstance(schema, dict):
        return schema, 0
    kept: dict[str, Any] = {}
    removed = 0
    for key, value in schema.items():
        is_value = not named and key in _HOLD_VALUES
        if value is None and (named or key not in _MAY_BE_NULL):
            removed += 1
            continue
        kept[key], count = (value, 0) if is_value else without_padding(value, named=key in _OF_NAMES and not named)
        removed += count
    return kept, removed


def without_absent(arguments: Mapping[str, Any], schema: Any) -> tuple[dict[str, Any], int]:
    """Arguments without the nulls that their function's schema does not allow, and how many were removed."""
    kept, removed = _bare(arguments, _variants(schema, schema), schema)
    return kept, removed


def _bare(arguments: Mapping[str, Any], variants: Sequence[Mapping[str, Any]], root: Any) -> tuple[dict[str, Any], int]:
    """An object without the nulls that none of these schemas allows. `root`: holds what `$ref` names."""
    properties = [held for variant in variants if isinstance(held := variant.get("properties"), dict)]
    kept: dict[str, Any] = {}
    removed = 0
    for key, value in arguments.items():
        known = [held[key] for held in properties if key in held]
        if value is None and not any(_allows_null(inner, root) for inner in known):
            removed += 1
            continue
        kept[key], count = _inside(value, known, root)
        removed += count
    return kept, removed


def _inside(value: Any, schemas: Sequence[Any], root: Any) -> tuple[Any, int]:
    variants = [variant for schema in schemas for variant in _variants(schema, root)]
    if isinstance(value, dict):
        objects = [variant for variant in variants if isinstance(variant.get("properties"), dict)]
        free = [variant for variant in variants if variant.get("type") == "object" and variant not in objects]
        return _bare(value, objects, root) if objects and not free else (value, 0)
    if isinstance(value, list):
        items = [held for variant in variants if isinstance(held := variant.get("items"), dict)]
        pairs = [_inside(item, items, root) for item in value]
        return [item for item, _ in pairs], sum(count for _, count in pairs)
    return value, 0


_DEEPEST = 16
"""Schemas within schemas that are followed: a `$ref` may name what it is in."""
_CHOICES = ("anyOf", "oneOf", "allOf")


def _variants(schema: Any, root: Any, depth: int = 0) -> list[dict[str, Any]]:
    """A schema and what it is made of: its choices, and what its `$ref` names."""
    if not isinstance(schema, dict) or depth > _DEEPEST:
        return []
    inner = [variant for key in _CHOICES for variant in schema.get(key) or ()]
    if "$ref" in schema:
        inner.append(_named(schema["$ref"], root))
    return [schema, *(variant for each in inner for variant in _variants(each, root, depth + 1))]


def _named(reference: Any, root: Any) -> Any:
    """The schema that `#/$defs/NAME` names; None if it is elsewhere."""
    if not isinstance(reference, str) or not reference.startswith("#/"):
        return None
    found = root
    for name in reference[2:].split("/"):
        found = found.get(name.replace("~1", "/").replace("~0", "~")) if isinstance(found, dict) else None
    return found


def _allows_null(schema: Any, root: Any, depth: int = 0) -> bool:
    """Whether a schema allows null: by its type, its choices, one of its variants, or since it has no type at all."""
    if not isinstance(schema, dict):
        return schema is True
    if schema.get("nullable") is True or depth > _DEEPEST:
        return True
    stated = [schema[key] for key in ("type", "enum", "const", *_CHOICES, "$ref") if key in schema]
    if not stated:
        return True
    type_, choices = schema.get("type"), schema.get("enum")
    if (
        type_ == "null"
        or (isinstance(type_, list) and "null" in type_)
        or (isinstance(choices, list) and None in choices)
    ):
        return True
    if "const" in schema and schema["const"] is None:
        return True
    if isinstance(type_, str) and "none" in type_.lower():
        return True
    if "$ref" in schema:
        named = _named(schema["$ref"], root)
        return named is None or _allows_null(named, root, depth + 1)
    every = schema.get("allOf")
    if isinstance(every, list) and every and type_ is None:
        return all(_allows_null(variant, root, depth + 1) for variant in every)
    variants = [variant for key in ("anyOf", "oneOf") for variant in schema.get(key) or ()]
    return any(_allows_null(variant, root, depth + 1) for variant in variants)
