"""A teacher's log-probabilities beside a dataset, each at the label that it belongs to.

coding     log-probabilities and ids ↔ the integers that are stored; pure
signals    the top k of some positions, and what must hold of them; pure
positions  the documents of a dataset, and which of their labels are scored
format     the files and the manifest of a folder of signals
tokenizer  whether teacher and dataset have one tokenizer
sources/   where scores come from: a model in this process, vLLM, a server
parts      documents scored together, and stored until all are
reader     signals by document
carry      signals of a dataset that was built again
score      scores a dataset
join       signals of some shards each → signals of a dataset
validate   checks signals against their dataset
looking/   what a teacher thinks of a dataset, for people
places     signals in a bucket
"""
