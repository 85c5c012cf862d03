"""Values of Parquet and Arrow → values of JSON.

In: the schema of a file, the values of a row. Out: the row as a JSON object.

    struct          every struct of a column has the keys of all its structs; a null there means that the key is absent,
                    so it is left out. A column that is null itself is kept
    arrow.json      the value of the text, as `datasets` returns it (its feature `Json`)
    time, NaN       text; null
"""

import math
from collections.abc import Callable, Iterable
from typing import Any

import pyarrow as pa

from spanloom.records.json_lines import unique_keys


class NoJsonError(Exception):
    """A value of a table that JSON cannot hold."""


Convert = Callable[[Any], Any]


def json_rows(schema: pa.Schema) -> Callable[[Iterable[Any]], dict[str, Any]]:
    """A function from the values of a row, in the order of the columns, to a JSON object. It raises NoJsonError."""
    columns = [(field.name, _of_field(field)) for field in schema]

    def row(values: Iterable[Any]) -> dict[str, Any]:
        return {name: convert(value) for (name, convert), value in zip(columns, values, strict=True)}

    return row


def _of_field(field: pa.Field) -> Convert:
    # A pyarrow that does not know the extension gives its storage type, and names it in the metadata.
    named = (field.metadata or {}).get(b"ARROW:extension:name", b"").decode()
    return _parsed if _EXTENSION in (named, getattr(field.type, "extension_name", "")) else _of_type(field.type)


_EXTENSION = "arrow.json"


def _of_type(type_: pa.DataType) -> Convert:
    if pa.types.is_struct(type_):
        inner = {field.name: _of_field(field) for field in type_}
        if any(convert is not _plain for convert in inner.values()):
            return lambda value: _struct(value, inner)
    elif pa.types.is_list(type_) or pa.types.is_large_list(type_) or pa.types.is_fixed_size_list(type_):
        item = _of_field(type_.value_field)
        if item is not _plain:
            return lambda value: None if value is None else [item(each) for each in value]
    return _plain


def _struct(value: Any, fields: dict[str, Convert]) -> Any:
    if value is None:
        return None
    return {name: fields[name](inner) for name, inner in value.items() if inner is not None}


def _parsed(value: Any) -> Any:
    """The value of a JSON text."""
    if value is None:
        return None
    try:
        return unique_keys(value.encode())
    except (ValueError, RecursionError) as fault:
        raise NoJsonError(f"a text in a column of JSON ({fault})") from None


def _plain(value: Any) -> Any:
    """A value for JSON: absent keys left out, times as text, NaN as null. Raises NoJsonError for other types."""
    if isinstance(value, str | bool | int) or value is None:
        return value
    if isinstance(value, float):
        if math.isinf(value):
            raise NoJsonError("an infinite number")
        return None if math.isnan(value) else value
    if isinstance(value, dict):
        return {name: _plain(inner) for name, inner in value.items() if inner is not None}
    if isinstance(value, list):
        return [_plain(inner) for inner in value]
    if hasattr(value, "isoformat"):
        return value.isoformat()
    raise NoJsonError(f"a value of type {type(value).__name__}")
