"""Columns and values of Parquet and Arrow → values of JSON.

In: the schema of a file, the values of a row. Out: the columns that JSON can hold; the row as a JSON object.

    string_view, dictionary<string>    text
    another extension                  its storage type
    binary, decimal, duration, time in nanoseconds, map, interval, union: JSON has no such value

A column of a type that JSON does not have is not read. Neither is one whose structs have a field of such a type, unless
the column may be used: then it is read, a time in nanoseconds as text, and a row with another such value is refused.
A value that JSON or Python does not have (infinity, the year 10000) is left out of its row if nobody needs its column.

    struct          every struct of a column has the keys of all its structs; a null there means that the key is absent,
                    so it is left out. A column that is null itself is kept
    arrow.json      the value of the text, as `datasets` returns it (its feature `Json`)
    time, NaN       text; null
"""

import math
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import pyarrow as pa

from spanloom.records.json_lines import unique_keys

JSON_EXTENSION = "arrow.json"


@dataclass(frozen=True, kw_only=True)
class Columns:
    """`schema`: the columns that are read, with the types as which they are read. `unread`: name → type of the
    others."""

    schema: pa.Schema
    unread: dict[str, str]


def columns_of(schema: pa.Schema, used: Collection[str] | None = None) -> Columns:
    """The columns of a file. `used`: names of columns that may be used; None: any may be."""
    fields: list[pa.Field] = []
    unread: dict[str, str] = {}
    for field in schema:
        may_be_used = used is None or field.name in used
        if not _has_json(_item(field)) or not (may_be_used or all(map(_has_json, _leaves(field)))):
            unread[field.name] = str(field.type)
        else:
            fields.append(field.with_type(plain_type(field.type)))
    return Columns(schema=pa.schema(fields), unread=unread)


def plain_array(column: pa.Array) -> pa.Array:
    """A column as its plain type. Raises pa.ArrowException if a value does not fit that type."""
    plain = plain_type(column.type)
    if column.type == plain:
        return column
    if pa.types.is_dictionary(column.type) and pa.types.is_string_view(column.type.value_type):
        column = _without_views(column)
    return column.cast(plain)


def _without_views(column: pa.DictionaryArray) -> pa.Array:
    """Polars' categories, without views, of which pyarrow 26 takes no values. Texts that no row has are not copied."""
    indices = column.indices.to_pylist()
    used = {index: number for number, index in enumerate(sorted({*indices} - {None}))}
    if not used:
        return pa.nulls(len(column))
    values = pa.concat_arrays([column.dictionary.slice(index, 1) for index in used]).cast(pa.large_string())
    return pa.DictionaryArray.from_arrays(pa.array(map(used.get, indices), pa.int32()), values)


def plain_batch(batch: pa.RecordBatch) -> pa.RecordBatch:
    """A batch with its columns as their plain types."""
    return pa.RecordBatch.from_arrays(list(map(plain_array, batch.columns)), names=batch.schema.names)


def is_text(kind: pa.DataType) -> bool:
    """Whether values of this type are text: of any width, in views, or in a dictionary."""
    plain = plain_type(kind)
    return bool(pa.types.is_string(plain) or pa.types.is_large_string(plain))


@lru_cache(maxsize=256)
def plain_type(kind: pa.DataType) -> pa.DataType:
    """The type as which a column is read."""
    if pa.types.is_dictionary(kind):
        return plain_type(kind.value_type)
    if pa.types.is_string_view(kind):
        return pa.large_string()  # views may refer to more text than 32-bit offsets reach
    return _times_as_text(_stored(kind))


def _times_as_text(kind: pa.DataType) -> pa.DataType:
    """The type with text for times in nanoseconds, which Python has not. Views of lists stay as they are: pyarrow 26
    casts a slice of them to empty lists."""
    types = pa.types
    if _in_nanoseconds(kind):
        return pa.large_string()
    if types.is_struct(kind):
        return pa.struct([field.with_type(_times_as_text(field.type)) for field in kind])
    if types.is_large_list(kind):
        return pa.large_list(kind.value_field.with_type(_times_as_text(kind.value_type)))
    if types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_times_as_text(kind.value_type)))
    return kind


def _item(field: pa.Field) -> pa.Field:
    """The field itself; of a list, that of its items."""
    kind = _stored(field.type)
    return _item(kind.value_field) if _is_list(kind) else field


def _leaves(field: pa.Field) -> list[pa.Field]:
    """The fields within a field that are neither structs nor lists; itself if it is neither."""
    item = _item(field)
    kind = _stored(item.type)
    return [leaf for inner in kind for leaf in _leaves(inner)] if pa.types.is_struct(kind) else [item]


def _stored(kind: pa.DataType) -> pa.DataType:
    is_other = isinstance(kind, pa.BaseExtensionType) and kind.extension_name != JSON_EXTENSION
    return _stored(kind.storage_type) if is_other else kind


def _is_list(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(
        types.is_list(kind)
        or types.is_large_list(kind)
        or types.is_fixed_size_list(kind)
        or types.is_list_view(kind)
        or types.is_large_list_view(kind)
    )


def _in_nanoseconds(kind: pa.DataType) -> bool:
    return bool((pa.types.is_timestamp(kind) or pa.types.is_time64(kind)) and kind.unit == "ns")


def _has_json(field: pa.Field) -> bool:
    """Whether JSON has values of a field's type; of structs true."""
    types, kind = pa.types, _stored(field.type)
    if types.is_dictionary(kind):
        kind = _stored(kind.value_type)
    without = (
        types.is_binary,
        types.is_large_binary,
        types.is_binary_view,
        types.is_fixed_size_binary,
        types.is_decimal,
        types.is_duration,
        types.is_interval,
        types.is_map,
        types.is_union,
        types.is_run_end_encoded,
    )
    return not _in_nanoseconds(kind) and not any(has(kind) for has in without)


UNREADABLE = object()
"""Stands for a value that Python cannot represent, in a column that nobody needs."""


class NoJsonError(Exception):
    """A value of a table that JSON cannot hold."""


Convert = Callable[[Any], Any]


def json_rows(
    schema: pa.Schema, needless: Collection[str] = ()
) -> Callable[[Iterable[Any]], tuple[dict[str, Any], tuple[str, ...]]]:
    """A function from the values of a row, in the order of the columns, to a JSON object, and the columns whose value
    was left out: of those in `needless`. For a value of another column it raises NoJsonError."""
    columns = [(field.name, _of_field(field)) for field in schema]

    def row(values: Iterable[Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
        read: dict[str, Any] = {}
        left_out: tuple[str, ...] = ()
        for (name, convert), value in zip(columns, values, strict=True):
            try:
                if value is UNREADABLE:
                    raise NoJsonError("a value that cannot be read")
                read[name] = convert(value)
            except NoJsonError:
                if name not in needless:
                    raise
                left_out += (name,)
        return read, left_out

    return row


def _of_field(field: pa.Field) -> Convert:
    # A pyarrow that does not know the extension gives its storage type, and names it in the metadata.
    named = (field.metadata or {}).get(b"ARROW:extension:name", b"").decode()
    return _parsed if JSON_EXTENSION in (named, getattr(field.type, "extension_name", "")) else _of_type(field.type)


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
