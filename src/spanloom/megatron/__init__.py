"""Megatron Core's IndexedDataset, the format on disk.

indexed      the bytes of `.bin` and `.idx`, and the writer of datasets that are parallel to each other
reader       the same files read with numpy alone
official     Megatron's own reader, which validation goes by: torch is imported when it is opened, and takes 3 s
independent  a second reader in numpy, for validation without Megatron: shares nothing with the writer
readers      which of the two validation goes by
validator    validation in a process of its own, started early
check        what must hold between parallel datasets, seen through one of these readers
"""
