"""Traces in a store, and datasets of them.

timestamps  times in the store, in exports, over HTTP
database    SQLite or PostgreSQL: one table, whole transactions, snapshots
ingest      JSON Lines → the store, one transaction a file
keys        the key of a dataset and its folder
manifest    the manifest's file
selection   which traces pass a filter, the newest of them, a random sample
catalogue   what there is, for people
"""
