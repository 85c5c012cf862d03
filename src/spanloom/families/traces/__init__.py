"""Reasoning traces: a store of prompt, steps and final answer → datasets by filter and selection → exports, tokens.

defaults     the defaults of all options
task_list    the pipeline as a list of tasks
errors       what stops
sample       traces of our own making
trace        what a trace may be, its canonical JSON, the id that follows from it

forms/       the forms in which people have traces
store/       traces in SQLite or PostgreSQL, and the datasets of them
build        a request over a snapshot → a manifest
places       stores and manifests at URIs
render       a trace as text, in Gemma's template
export/      ids → JSON Lines in three formats, and files of them

tokenizer    a tokenizer.json, and its end-of-document token
tokens       a rendered trace → tokens with loss mask and span
dataset      what the shared commands ask of token datasets
verify/      what is wrong with an export, or with a token dataset
steps/       the steps of the pipeline
token_build  tokens on one machine
service/     the HTTP service
"""
