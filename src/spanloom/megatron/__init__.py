"""Megatron Core's side: IndexedDatasets written, and read back through Megatron's own code.

    indexed   the bytes of `.bin` and `.idx`, and the writer of datasets that lie parallel to each other
    check     what must hold between parallel datasets, seen through Megatron's own reader

torch and megatron are imported only inside functions that need them: they cost 3 s and 350 MB.
"""
