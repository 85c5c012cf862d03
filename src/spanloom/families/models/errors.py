"""The exceptions of this family.

In: what a model's folder lacks, or why a run is not proven. Out: `ModelError`, which stops the command;
`RefusedError`, which `prove` turns into a `Refusal`.
"""

from spanloom.errors import SpanloomError


class ModelError(SpanloomError):
    """A model's folder lacks a file, or declares no stop tokens, or options do not fit it."""


def folder_missing(place: str) -> ModelError:
    """The error for a place without a model's files."""
    return ModelError(
        "the model's folder is missing",
        where=place,
        remedy="give the folder of a Hugging Face model, with tokenizer.json; `spanloom model fetch NAME` downloads one"
        " to data/models/NAME",
    )


class RefusedError(Exception):
    """A run is not proven. `kind`: the class of the refusal."""

    def __init__(self, kind: str, message: str, remedy: str) -> None:
        super().__init__(message)
        self.kind, self.message, self.remedy = kind, message, remedy
