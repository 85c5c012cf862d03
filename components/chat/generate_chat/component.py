"""Packed chat, step 1: conversations → transcripts that fit the context, and a report of the others.

In: the URI of a file or of a folder of conversations. Out: one file of transcripts at `transcripts_uri`, published by
the step itself, and the report. If the tokenizer is an empty string, the asset in the image is used.
"""

from components.of_task import component_of

generate_chat = component_of("chat.task_list", "generate-chat")
