"""What trainers import, and a run that shows how the parts are put together. torch is imported at the top here.

shard             a shard as a trainer names it, held against the manifest (no torch)
megatron_dataset  Megatron's GPTDataset with loss mask, and span where there is one
batch             the span on every rank, a step read ahead
loss              the loss per span, with the counts of the whole step
pretrain_gpt      the entry: Megatron-LM's own script (megatron_lm) with our dataset, batch and loss (megatron_step)
hugging_face      the loss per span in Hugging Face's trainers
weights           the loss of documents with weights, likewise
document_weights  the weights that the rows of a dataset have
pytorch           the dataset for other trainers, without Megatron
packed_samples    the samples of a plan (no torch); epoch_order: their order in each epoch
packed            packed samples for PyTorch: dataset, sampler, attention within documents
packed_megatron   the same for Megatron
passes            passes over samples read in shards, which go on where they stopped
script, checkpoint, trainlog, learning_rate   what training examples share
reference/        the reference run: a small GPT of megatron-core
"""
