"""What a teacher thinks of a dataset, for people.

rank        the documents that a teacher finds strangest
shown       documents to look at, with what the teacher expected at each token
statistics  means over the labels of groups of documents
"""
