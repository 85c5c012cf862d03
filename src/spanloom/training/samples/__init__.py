"""Sources of samples, without torch.

document_weights  document weights from the rows of a dataset
packed            the samples of a plan
epoch_order       their order in each epoch
teacher           a teacher's signals in samples
"""
