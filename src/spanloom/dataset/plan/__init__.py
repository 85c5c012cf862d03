"""Plans: which documents, or windows of them, make up each training sample.

bin_packing  packs units into sequences of one length; pure
windows      cuts long documents into windows; pure
format       the files of a plan, and opening a plan
check        checks a plan against its dataset
writer       makes a plan
"""
