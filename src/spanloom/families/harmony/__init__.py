"""SYNTH KD and harmony_chat: rows → Harmony conversations → token documents with spans.

defaults           the defaults of all options
sample             a small raw sample of our own, for the demo
tokenizer          openai-harmony's encoding over the pinned asset, and its special ids
tiktoken_encoding  the same tokenizer as tiktoken has it, and whether the two are one

contract/          what a source may hold, which documents its rows become, what decides the bytes
convert/           raw SYNTH, or chat data of any form → a source
render/            conversations → tokens and spans
verify/            what must hold in every document, checked against the source too
steps/             the steps of the pipeline
task_list          the pipeline as a list of tasks
raw_task_list      the same with the conversion of raw SYNTH in front

dataset            what the shared commands ask of SYNTH KD, and of both profiles
chat_dataset       what they ask of harmony_chat
options            the options of a build on one machine
build_root         what is where a build is to go
build              all steps on one machine
"""
