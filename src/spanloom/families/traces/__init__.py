"""Reasoning traces: a store of prompt, steps and final answer → datasets by filter and selection → exports, tokens.

defaults          the defaults of all options
task_list.toml  the pipeline as a list of tasks
errors            the exceptions
sample            generated example traces
trace             the rules of a trace, its canonical JSON and its content id

forms/            record formats of published data, read as traces
store/            traces in SQLite or PostgreSQL, and the datasets of them
build             a request over a snapshot → a manifest
places            stores and manifests at URIs
render            a trace as text, in Gemma's template
export/           ids → JSON Lines in three formats, and files of them

encoding/         a trace as tokens with loss mask and span
recipe            how the traces of a dataset become documents
dataset           the interface of token datasets to the shared commands
verify/           checks of exports and token datasets
steps/            the steps of the pipeline
token_build       tokens on one machine
service/          the HTTP service
"""
