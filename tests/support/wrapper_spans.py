"""The spans of documents as validation reads them off the tokens."""

from spanloom.families.harmony.verify.structure.messages import Faults, StructureFault, read_messages
from spanloom.families.harmony.verify.structure.spans import TrainedMessages, spans_of_messages
from spanloom.supervision import Flags, Lengths, Tokens


def spans_from_wrappers(
    tokens: Tokens, lengths: Lengths, trained: TrainedMessages | None = None
) -> tuple[Flags, list[StructureFault]]:
    """Token-aligned spans of documents that each end in EOD, and the faults."""
    faults = Faults(lengths)
    messages = read_messages(tokens, lengths, faults, chat=trained is not None)
    return spans_of_messages(messages, faults, trained, None), faults.found
