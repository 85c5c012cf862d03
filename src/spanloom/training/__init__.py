"""What trainers import, and a run that shows how the parts are put together. torch is imported at the top here.

shard             a shard as a trainer names it, held against the manifest (no torch)
samples/          weights of documents, samples of a plan, their order in an epoch (no torch)
megatron_dataset  Megatron's GPTDataset with loss mask, and span where there is one
batch             the span on every rank, a step read ahead
loss              the loss per span, with the counts of the whole step
megatron_lm       Megatron-LM's own script with names of it swapped
megatron_step     our batch and loss in its step
pretrain_gpt      the entry: that script with our dataset, batch and loss
pytorch           the dataset for other trainers, without Megatron
hugging_face      the loss per span in Hugging Face's trainers
weights           the loss of documents with weights, likewise
packed            packed samples for PyTorch: dataset, sampler, attention within documents
packed_megatron   the same for Megatron
runs/             what training examples share
reference/        the reference run: a small GPT of megatron-core
"""
