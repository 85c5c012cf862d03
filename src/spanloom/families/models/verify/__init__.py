"""Whether a finished dataset is correct: methods B and S again, without the code that proved it.

documents  what must hold in every document on disk
content    what the manifest says, and the files that the dataset carries
frames     what is trained, against the frames that the template writes
texts      the texts of a conversation in its documents, without rendering
messages   a row of a source → messages for the template, parsed a second time
adapted    a conversation as the build adapted it, made a second time
swaps      words in place of texts
reference  the documents of a conversation, rendered and encoded a second time
faults     what is wrong with a refused conversation; texts that the template drops
source     a dataset checked against its source
"""
