"""What clients send: requests about datasets and exports, and traces as JSON.

In: a parsed body, or its bytes. Out: a request, or the heads of new traces. Raises RequestValidationError and
HTTPException, which say what is wrong with a body.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, Any

from fastapi import HTTPException
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, WrapValidator, field_validator
from pydantic_core import PydanticCustomError
from starlette.datastructures import Headers

from spanloom.families.traces.build import BuildRequest
from spanloom.families.traces.defaults import CONTROL_TOKENS, PROTECT_METADATA
from spanloom.families.traces.forms.form import TraceForm
from spanloom.families.traces.forms.mapped import mapped_form
from spanloom.families.traces.render import ControlTokens
from spanloom.families.traces.store.database import Store, TraceHead
from spanloom.families.traces.store.ingest import Ids, add_traces
from spanloom.families.traces.trace import Trace, check_json, fault_message, trace_model
from spanloom.service.answers import ERRORS_TOLD, more_errors
from spanloom.service.bodies import check_memory, inlined, is_json, json_value, shape

MAX_BATCH = 1000
"""Traces of one body."""


class IngestMap(BaseModel):
    """Which keys of a record are the prompt, the answer and the steps, as `--map` names them."""

    model_config = ConfigDict(extra="forbid")

    prompt: Annotated[str, Field(min_length=1)]
    answer: Annotated[str, Field(min_length=1)]
    steps: Annotated[str, Field(min_length=1)]

    def form(self) -> TraceForm:
        """The form of records with these keys."""
        return mapped_form([f"{meaning}={key}" for meaning, key in self.model_dump().items()])


class IngestRequest(BaseModel):
    """A file below the service's ingest directory.

    recognise  records of other forms are read, as `spanloom traces ingest` does; without it traces alone
    map        the keys of the records; for what has no known form
    """

    path: str
    source_name: str
    ids: Ids = "content"
    strict: bool = False
    created_at: str | None = None
    recognise: bool = False
    map: IngestMap | None = None

    @field_validator("path", "source_name")
    @classmethod
    def _text(cls, value: str) -> str:
        check_json(value)
        return value


class ServiceBuildRequest(BuildRequest):
    """A build; with `reproducible` its id and times follow from what is built."""

    reproducible: bool = False


def _texts(values: Any, handler: Callable[[Any], Any]) -> Any:
    """Validates a list of texts. For many invalid items, one error gives the number and the first."""
    wrong = [number for number, value in enumerate(values) if type(value) is not str] if type(values) is list else []
    if len(wrong) > ERRORS_TOLD:
        raise PydanticCustomError(
            "string_type",
            "{count} of the ids are no text, the first of them number {first}",
            {"count": len(wrong), "first": wrong[0]},
        )
    return handler(values)


class SftExportRequest(BaseModel):
    """A dataset, or ids in the order that is wanted. `limit` is taken and has no effect."""

    dataset_key: Annotated[str | None, Field(min_length=1, max_length=256)] = None
    trace_ids: Annotated[list[str] | None, WrapValidator(_texts)] = None
    limit: Annotated[int, Field(ge=1, le=10_000)] = 100
    protect_metadata: bool = PROTECT_METADATA
    control_tokens: ControlTokens = CONTROL_TOKENS
    sort_steps: bool = False
    system: str | None = None

    @field_validator("system")
    @classmethod
    def _text(cls, value: str | None) -> str | None:
        check_json(value)
        return value


def body_of(kind: TypeAdapter[Any]) -> dict[str, Any]:
    """The OpenAPI description of a body that the route itself parses."""
    schema = inlined(kind.json_schema())
    return {"requestBody": {"content": {"application/json": {"schema": schema}}, "required": True}}


def stored(store: Store, body: list[bytes], headers: Headers) -> list[TraceHead]:
    """The trace in a body. Empties the list that holds the body, to free its memory early."""
    check_memory(body[0])
    return add_traces(store, _checked([_value(body, headers)], [("body",)], store.max_step_characters))


def stored_batch(store: Store, body: list[bytes], headers: Headers) -> list[TraceHead]:
    """The traces in a body; their number is checked before they are parsed."""
    measured = shape(body[0])
    if measured.items > MAX_BATCH:
        raise HTTPException(400, f"Batch size ({measured.items}) exceeds maximum ({MAX_BATCH})")
    check_memory(body[0], measured)
    values = _value(body, headers)
    if type(values) is not list:
        raise RequestValidationError([{"type": "list_type", "loc": ("body",), "msg": "Input should be a valid list"}])
    if not values:
        raise HTTPException(400, "Batch must contain at least one trace")
    places = [("body", number) for number in range(len(values))]
    return add_traces(store, _checked(values, places, store.max_step_characters))


def _value(body: list[bytes], headers: Headers) -> Any:
    """The JSON value of a body; if the header does not declare JSON, its bytes, which are never a valid trace."""
    data = body.pop()
    if not data:
        raise RequestValidationError([{"type": "missing", "loc": ("body",), "msg": "Field required"}])
    return json_value(data) if is_json(headers.get("content-type")) else data


def _checked(values: list[Any], places: Sequence[tuple[str | int, ...]], max_step_characters: int) -> Iterator[Trace]:
    """The traces of values; each is released before the next.

    Raises RequestValidationError after the last value, with the first errors and the number of all.
    """
    model = trace_model(max_step_characters)
    errors: list[dict[str, Any]] = []
    count = 0
    for number, place in enumerate(places):
        value, values[number] = values[number], None
        try:
            trace = model.model_validate(value, from_attributes=True)
        except ValidationError as fault:
            count += fault.error_count()
            if len(errors) < ERRORS_TOLD:
                faults = fault.errors(include_url=False, include_context=False, include_input=False)
                errors += [
                    {**error, "loc": (*place, *error["loc"]), "msg": fault_message(error)}
                    for error in faults[: ERRORS_TOLD - len(errors)]
                ]
            continue
        del value
        if not errors:
            yield trace
        del trace
    if errors:
        raise RequestValidationError([*errors, more_errors(count - len(errors))])
