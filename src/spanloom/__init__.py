"""Spanloom: training-ready token datasets whose supervision is aligned token by token.

The packages, in the order in which imports may run:

    cli → audit → families → steps, service → report, training → dataset → conversations → megatron, tokenizers, records
    → storage → the rest

    cli/            the `spanloom` command
    audit/          token datasets of anybody held against the model that they train
    families/       one folder a dataset family, from raw records to a dataset
    service/        the HTTP application that routes of families go into
    steps/          steps of the pipelines that every family shares
    report/         values in, pages and tables for people out
    training/       what trainers import: the dataset for Megatron and for plain PyTorch, the loss per span
    dataset/        what every dataset root has: manifest, files, validation, statistics, export
    conversations/  chat data of any form → conversations, and the folders of them
    megatron/       the IndexedDataset format
    tokenizers/     the o200k vocabulary, tokenizer.json files, spans of characters
    records/        reading JSON Lines and Parquet, strictly
    storage/        files on this machine, gs://, s3://

    tasks/          a pipeline as a list of stages, and what Slurm is given of it
    kubeflow        Kubeflow's executor input → plain arguments; results → artifacts, metadata, metrics
    provenance      canonical JSON, hashes, git SHA, versions, the machine
    machine         the CPUs and the memory that this process may use
    workers         worker processes and the counters they report through
    supervision     token documents, spans from messages, the shift to labels
    split           which ids are valid
    findings        findings, and reports of them
    text            text of others made visible
    no_pandas       pandas kept out of processes that only read Arrow
    errors          the exceptions and their exit codes
    presentable     URLs and connection strings without passwords and keys
    __main__        the entry of the command
"""

__version__: str


def __getattr__(name: str) -> str:
    """`__version__`, looked up on demand: importlib.metadata takes longer to import than the interpreter."""
    if name == "__version__":
        from importlib.metadata import version

        return version("spanloom")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
