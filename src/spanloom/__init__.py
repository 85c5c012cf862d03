"""Spanloom: training-ready token datasets whose supervision is aligned token by token.

The packages, in the order in which imports may run:

    cli → families → steps, service → report, training → dataset → megatron, tokenizers, records → storage → the rest

    families/    one folder a dataset family, from raw records to a dataset: SYNTH KD (harmony), packed chat (chat)
    service/     the HTTP application that routes of families go into
    steps/       steps of the pipelines that every family shares
    dataset/     what every dataset root has: manifest, files, validation, statistics, export
    report/      values in, pages and tables for people out
    training/    what trainers import: the dataset for Megatron and for plain PyTorch, the loss per span
    megatron/    the IndexedDataset format
    records/     reading JSON Lines and Parquet, strictly
    tokenizers/  the o200k vocabulary, tokenizer.json files, spans of characters
    storage/     files on this machine, gs://, s3://
"""

__version__: str


def __getattr__(name: str) -> str:
    """`__version__`, looked up when it is asked for: importlib.metadata takes longer to import than the interpreter."""
    if name == "__version__":
        from importlib.metadata import version

        return version("spanloom")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
