"""SYNTH KD and harmony_chat: rows → Harmony conversations → token documents with spans.

defaults           the defaults of all options
sample             a small built-in raw sample, for the demo
tokenizer          openai-harmony's encoding over the pinned asset, and its special ids
tiktoken_encoding  the same tokenizer in tiktoken, and the comparison of the two

contract/          the source formats, the documents that rows become, the options that decide the bytes
convert/           raw SYNTH, or chat data of any form → a source
render/            conversations → tokens and spans
verify/            the checks of every document, also against the source
steps/             the steps of the pipeline
task_list.toml  the pipeline as a list of tasks
chat_task_list.toml  the same for conversations, with the options of how they are cut

dataset            the functions that shared commands call for SYNTH KD, and those shared by both profiles
chat_dataset       the functions that shared commands call for harmony_chat
options            the options of a build on one machine
estimate           about how large a build becomes
recipe             how the rows of a source become documents
build              all steps on one machine
"""
