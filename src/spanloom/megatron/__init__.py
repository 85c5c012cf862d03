"""Megatron Core's side: IndexedDatasets written, read back through Megatron's own code, and trained on.

    indexed    the bytes of `.bin` and `.idx`, and the writer of datasets that lie parallel to each other
    reader     the same files read with numpy alone
    check      what must hold between parallel datasets, seen through Megatron's own reader

    shard      a shard as a trainer names it, held against the manifest
    blend      which prefixes to train on, with their weights
    dataset    Megatron's GPTDataset with loss mask, and span where there is one
    batch      the span on every rank, a step read ahead
    loss       the loss per span, with the counts of the whole step
    plain      the dataset for other trainers, without Megatron

    training   the reference run, of model · schedule · optimizer · learning_rate · stream · checkpoint · trainlog

Down to `blend`, torch and megatron are imported only inside functions that need them: they cost 3 s and 350 MB. From
`dataset` on they are imported at the top, by those who train.
"""
