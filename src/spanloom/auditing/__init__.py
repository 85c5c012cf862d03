"""Checks token datasets, of any origin, against the model that they train. The rules are in `spanloom.law`.

readers/       dataset files → documents, streamed
auditor        a model → the tables and proofs of an audit
messages       the source conversations of a dataset, in a file that all workers share
conversations  with messages: documents compared with proven ones
duplicates     documents with the same tokens
listing        all findings as lines of JSON
shown          coloured documents of findings
result         the result, as JSON and as lines
run            a whole dataset: units, workers, one result
page           the result as a page
"""
