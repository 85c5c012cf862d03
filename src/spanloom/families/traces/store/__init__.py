"""Traces in a store, and datasets of them.

timestamps  times in the store, in exports, over HTTP
database    SQLite or PostgreSQL: one table, whole transactions, snapshots
opening     a URL → the store there; its schema
source      files of records of any form → JSON values of traces
ingest      a file → the store, one transaction, all of it or nothing
keys        the key of a dataset and its folder
manifest    the manifest's file
conditions  numbers that a trace must have, and no duplicates by content
selection   which traces pass a filter, the newest of them, a random sample
catalogue   what there is, for people
"""
