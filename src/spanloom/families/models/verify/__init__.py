"""Whether a finished dataset is right, by methods B and S again, without the code that proved it.

documents  what must hold in every document on disk
content    what the manifest says, and the files that the dataset carries
messages   a row of a source → messages for the template, read a second time
reference  the documents of a conversation, rendered and encoded a second time
faults     what is wrong with a conversation that was refused, and what of one is lost
source     a dataset checked against its source
"""
