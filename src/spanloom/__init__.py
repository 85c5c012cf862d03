"""Spanloom: token datasets with a proven loss mask: which tokens are trained, and in which span.

Chat data → a checked dataset → documents, without Megatron and without torch:

    import spanloom

    spanloom.convert("chat.jsonl", "source")
    spanloom.build("source", "dataset", valid_fraction=0.1)
    for document in spanloom.open_dataset("dataset", split="train"):
        print(document.id, document.text, document.tokens, document.loss_mask, document.spans)

    convert()          chat data in any common form → a source folder
    build()            a source folder → a validated dataset, for gpt-oss or for any Hugging Face model (model="DIR")
    validate()         check every file, token and label of a dataset
    inspect()          documents with each token's text and span, or a page of them
    export()           a dataset as files for TRL, Axolotl, LLaMA-Factory, Megatron-Bridge or `datasets`
    plan()             which documents share a sample of training
    audit()            check the loss mask of any token dataset against its model
    open_dataset()     documents with tokens, loss mask, spans and text
    spanloom.training  datasets and losses for PyTorch, transformers, TRL and Megatron; needs torch

Each function does what the command of the same name does. It takes paths or URIs, prints nothing, and raises
SpanloomError with what was wrong, where, and what to do. docs/api.md of the repository has examples.

The packages, in the order in which imports may run:

    cli → api → auditing → families, steps → building, service → report, training → teacher → dataset → conversations →
    law → megatron, tokenizers, records → storage → the rest

    cli/            the `spanloom` command
    api/            what `import spanloom` offers
    auditing/       checks of any token dataset against the model that it trains
    families/       one folder per dataset family, from raw records to a dataset
    building/       the machine that makes datasets from what a family gives
    service/        the HTTP application that serves the routes of the families
    steps/          pipeline steps that all families share
    report/         values in, pages and tables for readers out
    training/       what trainers import: the dataset for Megatron and for plain PyTorch, the loss per span
    teacher/        a teacher's log-probabilities beside a dataset
    dataset/        what every dataset root has: manifest, files, validation, statistics, export
    conversations/  chat data of any form → conversations, and folders of conversations
    law/            what a dataset may train: rules for validation and the audit
    megatron/       the IndexedDataset format
    tokenizers/     the o200k vocabulary, tokenizer.json files, spans of characters
    records/        reading JSON Lines and Parquet, strictly
    storage/        files on this machine, gs://, s3://

    options/        options with their help, from which commands and steps are made
    tasks/          a pipeline as a list of stages, and its Slurm jobs
    kubeflow        Kubeflow's executor input → plain arguments; results → artifacts, metadata, metrics
    provenance      canonical JSON, hashes, git SHA, versions, the machine
    machine         the CPUs and the memory that this process may use
    workers         worker processes and their progress counters
    supervision     token documents, spans from messages, the shift to labels
    split           which ids are valid
    findings        findings, and reports of them
    text            foreign text made printable
    no_pandas       pandas kept out of processes that only read Arrow
    errors          the exceptions and their exit codes
    presentable     URLs and connection strings without passwords and keys
    __main__        the entry point of the command
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from spanloom import training as training
    from spanloom.api.auditing import audit as audit
    from spanloom.api.building import build as build
    from spanloom.api.converting import convert as convert
    from spanloom.api.documents import Dataset as Dataset
    from spanloom.api.documents import Document as Document
    from spanloom.api.documents import Span as Span
    from spanloom.api.documents import open_dataset as open_dataset
    from spanloom.api.exporting import export as export
    from spanloom.api.exporting import plan as plan
    from spanloom.api.looking import inspect as inspect
    from spanloom.api.validating import validate as validate
    from spanloom.building.make import BuildResult as BuildResult
    from spanloom.errors import SpanloomError as SpanloomError
    from spanloom.findings import FindingsError as FindingsError
    from spanloom.findings import Report as Report

    __version__: str

_FROM = {
    "BuildResult": "building.make",
    "Dataset": "api.documents",
    "Document": "api.documents",
    "FindingsError": "findings",
    "Report": "findings",
    "Span": "api.documents",
    "SpanloomError": "errors",
    "audit": "api.auditing",
    "build": "api.building",
    "convert": "api.converting",
    "export": "api.exporting",
    "inspect": "api.looking",
    "open_dataset": "api.documents",
    "plan": "api.exporting",
    "validate": "api.validating",
}
"""Name → the module that defines it. Each is imported on first use; `import spanloom` itself imports none."""

__all__ = [
    "BuildResult",
    "Dataset",
    "Document",
    "FindingsError",
    "Report",
    "Span",
    "SpanloomError",
    "__version__",
    "audit",
    "build",
    "convert",
    "export",
    "inspect",
    "open_dataset",
    "plan",
    "training",
    "validate",
]

if not TYPE_CHECKING:  # otherwise mypy accepts every misspelt name

    def __getattr__(name: str) -> Any:
        if name in _FROM:
            value = getattr(import_module(f"spanloom.{_FROM[name]}"), name)
        elif name == "training":
            value = import_module("spanloom.training")
        elif name == "__version__":
            from importlib.metadata import version

            value = version("spanloom")
        else:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})
