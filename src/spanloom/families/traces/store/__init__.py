"""Traces in a store, and datasets of them.

timestamps  times in the store, in exports, over HTTP
faults      errors of the database: what it is, where, what to do
database    SQLite or PostgreSQL: one table, whole transactions, snapshots
opening     a URL → the store there; its schema
source      files of records of any form → JSON values of traces
ingest      a file → the store, in one transaction, all or nothing
keys        the key of a dataset and its folder
manifest    the manifest's file
conditions  conditions on numbers of a trace, and on duplicate content
selection   filters traces; selects the newest or a random sample
catalogue   lists of datasets and traces for the terminal
"""
