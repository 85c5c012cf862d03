"""What samples are made of, without torch.

document_weights  the weights that the rows of a dataset have
packed            the samples of a plan
epoch_order       their order in each epoch
"""
