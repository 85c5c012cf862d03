"""Checks token datasets, of any origin, against the model that they train.

classes        the classes of findings: what each means, what to do
documents      documents as arrays
readers/       dataset files → documents, streamed
frames/        the message that each token belongs to, derived from the tokens
judging        documents and the tokens that the model samples → findings
auditor        a model → the tables and proofs of an audit
messages       the source conversations of a dataset, in a file that all workers share
conversations  with messages: documents compared with proven ones
retokenised    documents whose ids differ from the tokenizer's ids of their text
duplicates     documents with the same tokens
shown          coloured documents of findings
result         the result, as JSON and as lines
run            a whole dataset: units, workers, one result
page           the result as a page
"""
