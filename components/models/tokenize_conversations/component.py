"""Any model, the step before validation: conversations → tokens, loss mask and spans under the root.

In: the URIs of a source folder and of a model's folder. Out: the dataset's files and manifest.pending.json, published
create-only at `dataset_root` by the step itself; a small artifact that points there; the model's tokenizer.json. For an
empty parameter the step's default applies.
"""

from functools import partial

from components.of_task import component_of

tokenize_conversations = component_of("models.task_list", "tokenize-conversations", outputs=("dataset", "metrics"))
OTHERS = (partial(component_of, "models.task_list:BY_SHARD", "tokenize-conversations"),)
"""The component for one shard."""
