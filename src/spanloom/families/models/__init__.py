"""Any Hugging Face model: masks of its chat template, proven run by run.

defaults          the defaults of all options, names of spans
task_list.toml  the pipeline as a list of tasks
errors            the exceptions
conversation      what is proven: a list of messages, tools, variables
form              the form in which a template takes messages
model             a model's folder: tokenizer, template, stop tokens
samples/          conversations that find faults of templates, and a small model
dataset           datasets for a model, as the shared commands see them
places            a model's folder at a URI, brought to this machine
fetch             folders of published models, from packages; for set-up
recipe            how the rows of a source become documents
build             a source and a model's folder → a validated dataset
source/           source folders, and what a row of them holds
prove/            one run by three methods; a conversation → documents or a refusal
workarounds/      what is done where a template cannot take a conversation as it is
paths/            documents by the paths of a template, equal to those of the full proof
probe/            which form a template takes, what it does, which of forty conversations are proven
documents/        conversations of a source → documents of tokens
verify/           whether a dataset is right, by code of its own
steps/            the step of the pipeline
"""
