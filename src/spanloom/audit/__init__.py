"""Token datasets of anybody checked against the model that they train.

classes        the classes of findings: what each means, what to do
documents      documents as arrays
readers/       containers → documents, streamed
frames/        which message each token is of, read off the tokens
judging        documents and what the model samples of them → findings
auditor        a model → what documents are audited with
messages       the conversations that a dataset was made from, read into a file that all workers share
conversations  with messages: what proofs say of documents
retokenised    documents whose ids are not those of their text
duplicates     documents with the same tokens
shown          documents of findings, coloured
result         what an audit found; as JSON and as lines
run            a whole dataset: units, workers, one result
page           the result as a page
"""
