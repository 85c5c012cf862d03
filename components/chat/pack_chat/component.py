"""Packed chat, step 2: transcripts → blocks under the dataset root.

In: the URI of a file or of a folder of transcripts. Out: the dataset's files and manifest.pending.json, published
create-only at `dataset_root` by the step itself; a small artifact that points there; and a copy of the tokenizer, with
which validation packs again. If the tokenizer is an empty string, the asset in the image is used.
"""

from functools import partial

from components.of_task import component_of

pack_chat = component_of("chat.task_list", "pack-chat", outputs=("dataset", "metrics"))
OTHERS = (partial(component_of, "chat.task_list:BY_SHARD", "pack-chat"),)
"""The component for one shard."""
