"""Croissant metadata of an export, `croissant.json`, made and validated by mlcroissant.

In: what was exported, the family's description of the dataset, its languages. Out: JSON-LD of Croissant 1.1: every file
with its sha256, a record set per split, the source of the dataset and the software that made it (PROV-O), how the
source was processed (Croissant RAI). No time, no local path: the same export gives the same bytes.
"""

import importlib.util
import logging
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from typing import Any

import pyarrow as pa

from spanloom.dataset.export.parquet import Exported
from spanloom.dataset.family import Description
from spanloom.dataset.manifest import Content
from spanloom.dataset.root.layout import hub_split
from spanloom.dataset.statistics import Counts
from spanloom.errors import DatasetError
from spanloom.no_pandas import allow_pandas
from spanloom.provenance import readable_json
from spanloom.text import visible_line

CROISSANT_JSON = "croissant.json"
EXTRA = "spanloom[croissant]"

_CROISSANT = "http://mlcommons.org/croissant/1.1"
_RAI = "http://mlcommons.org/croissant/RAI/1.0"
_VOCABULARY = {
    "arrayShape": "cr:arrayShape",
    "containedIn": "cr:containedIn",
    "description": {"@container": "@language"},
    "isArray": "cr:isArray",
    "name": {"@container": "@language"},
    "prov": "http://www.w3.org/ns/prov#",
}
"""What the context of Croissant 1.1 adds to that of 1.0, which is mlcroissant's default; and PROV-O."""


def wants_croissant(asked: bool | None) -> bool:
    """Whether to write metadata: as `asked`, or, for None, if mlcroissant is installed (without importing it).

    Raises DatasetError if metadata are requested and mlcroissant is not installed.
    """
    installed = importlib.util.find_spec("mlcroissant") is not None
    if asked and not installed:
        raise DatasetError("Croissant metadata need mlcroissant", remedy=f"pip install '{EXTRA}', or --no-croissant")
    return installed if asked is None else asked


def croissant_json(description: Description, by_language: Mapping[str, Counts], exported: Exported) -> bytes:
    """The metadata of an export. Raises DatasetError if mlcroissant rejects it."""
    allow_pandas()
    with _own_settings_kept():
        import mlcroissant

        return _checked_json(mlcroissant, description, by_language, exported)


@contextmanager
def _own_settings_kept() -> Iterator[None]:
    """Leaves filters of warnings and handlers of logging as they are. The libraries that mlcroissant imports add
    filters, and absl adds a handler when it warns: of every recommended property that is missing, such as a date, which
    datasets here do not have."""
    absl, handlers = logging.getLogger("absl"), list(logging.root.handlers)
    level = absl.level
    absl.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            yield
    finally:
        absl.setLevel(level)
        for handler in [handler for handler in logging.root.handlers if handler not in handlers]:
            logging.root.removeHandler(handler)


def _checked_json(
    mlcroissant: Any, description: Description, by_language: Mapping[str, Counts], exported: Exported
) -> bytes:
    try:
        made: dict[str, Any] = _metadata(mlcroissant, description, by_language, exported).to_json()
        mlcroissant.Dataset(jsonld=deepcopy(made))  # it modifies its argument
    except (mlcroissant.ValidationError, ValueError) as fault:
        raise DatasetError(
            f"mlcroissant rejects the metadata: {' '.join(str(fault).split())}",
            remedy="leave them out with --no-croissant",
        ) from None
    return readable_json(made)


def _metadata(mlc: Any, description: Description, by_language: Mapping[str, Counts], exported: Exported) -> Any:
    content, form = exported.content, exported.form
    context = mlc.Context(conforms_to=_CROISSANT, rdf=mlc.Rdf(context={**mlc.Rdf().context, **_VOCABULARY}))
    files = exported.said["files"]
    splits = list(dict.fromkeys(file["split"] for file in files))
    distribution = [
        mlc.FileObject(
            ctx=context,
            id=file["path"],
            name=file["path"],
            content_url=file["path"],
            content_size=f"{file['bytes']} B",
            encoding_formats=[mlc.EncodingFormat.PARQUET],
            sha256=file["sha256"],
        )
        for file in files
    ]
    distribution += [
        mlc.FileSet(
            ctx=context,
            id=f"{split}-files",
            name=f"{split}-files",
            description=f"the files of the split {split}",
            encoding_formats=[mlc.EncodingFormat.PARQUET],
            includes=[f"{split}/*{form.suffix}"],
        )
        for split in splits
    ]
    record_sets = [_record_set(mlc, context, exported, split) for split in splits]
    licence = content.input.license
    source_name = visible_line(content.input.dataset or content.input.schema_version, 200)
    return mlc.Metadata(
        ctx=context,
        conforms_to=[_CROISSANT, _RAI],
        name=visible_line(content.input.dataset or content.family, 200),
        description=f"{description.introduction} Exported in the form {form.name}.",
        version=f"1.0.0+{content.sha256[:16]}",
        license=[visible_line(licence, 200)] if licence else None,
        keywords=["spanloom", *description.tags, "tokenized", form.name],
        in_language=sorted(visible_line(name, 200) for name in by_language) or None,
        distribution=distribution,
        record_sets=record_sets,
        data_collection=f"Read from {source_name}: {content.totals.rows_read} rows read, "
        f"{sum(content.totals.rejected.values())} rejected.",
        data_collection_type=["Secondary Data Analysis"],
        data_collection_raw_data=f"{len(content.input.shards)} files of {content.input.schema_version}, named by their "
        "sha256 under prov:wasDerivedFrom.",
        data_preprocessing_protocol=[visible_line(line, 1000) for line in description.making],
        data_use_cases=["Fine-tuning of language models: tokens with the mask of those that carry loss."],
        extra_properties=_provenance(content, exported),
    )


def _record_set(mlc: Any, context: Any, exported: Exported, split: str) -> Any:
    name = hub_split(split)
    form = exported.form
    fields = []
    for column in form.schema:
        is_list = pa.types.is_list(column.type)
        fields.append(
            mlc.Field(
                ctx=context,
                id=f"{name}/{column.name}",
                name=column.name,
                description=form.meanings[column.name],
                data_types=[mlc.DataType.INTEGER if is_list else mlc.DataType.TEXT],
                is_array=True if is_list else None,
                array_shape="-1" if is_list else None,
                source=mlc.Source(file_set=f"{split}-files", extract=mlc.Extract(column=column.name)),
            )
        )
    return mlc.RecordSet(ctx=context, id=name, name=name, description=f"the {form.unit} of {name}", fields=fields)


def _provenance(content: Content, exported: Exported) -> dict[str, Any]:
    """PROV-O: the hashes of the source files, and the run that made the tokens."""
    sources: list[dict[str, Any]] = [
        {"@type": "prov:Entity", "prov:label": visible_line(file.path, 200), "sc:sha256": file.sha256}
        for file in content.input.shards
    ]
    if content.input.manifest_sha256 is not None:
        manifest = {"@type": "prov:Entity", "prov:label": "manifest.json", "sc:sha256": content.input.manifest_sha256}
        sources.insert(0, manifest)
    tokenizer = content.tokenizer
    return {
        "prov:wasDerivedFrom": sources,
        "prov:wasGeneratedBy": {
            "@type": "prov:Activity",
            "prov:label": f"tokenised with {visible_line(tokenizer.name, 200)}, tokenizer sha256 {tokenizer.sha256}",
            "prov:wasAssociatedWith": {
                "@type": "prov:SoftwareAgent",
                "prov:label": "Spanloom",
                "sc:softwareVersion": content.git_sha,
            },
            "sc:identifier": [
                f"config sha256 {content.config_sha256}",
                f"content sha256 {exported.said['content_sha256']}",
            ],
        },
    }
