"""Plans: which documents, or windows of them, make up each sample of training.

bin_packing  which units go together into sequences of one length; pure
windows      long documents cut into windows; pure
format       the files of a plan, and opening one
check        a plan checked against its dataset
writer       making a plan
"""
