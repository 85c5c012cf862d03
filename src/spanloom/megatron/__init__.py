"""Megatron Core's IndexedDataset, the format on disk.

indexed      the bytes of `.bin` and `.idx`, and the writer of datasets that are parallel to each other
reader       the same files read with numpy alone
official     Megatron's own reader, for validation: its file alone, without torch
independent  a second reader in numpy, for validation without Megatron: shares no code with the writer
readers      chooses the reader of validation
validator    validation in its own process, started early
check        checks of parallel datasets, through one of these readers
"""
