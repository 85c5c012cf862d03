"""Packed chat: conversations → transcripts → one stream of tokens → blocks of one length with a loss mask.

    defaults          the defaults of all options
    options/          the options that decide bytes, with their help
    task_list.toml  the pipeline as a list of tasks
    transcripts/      conversations → transcripts with the length filter; transcripts in files and at URIs
    tokenizer         transcripts → tokens, and the ids of the markers

    blocks/           what packing looks at: the stream, the loss mask of a block
    recipe            how records become tokens, before they are packed
    packing           the stream → blocks: boundary injection and the stop rule
    root/             finished blocks on disk, and what their tokens stand for
    verify/           what must hold in every block on disk, computed again
    dataset           what the shared commands ask of this family
    steps/            the steps of the pipeline
    build             all of them on one machine

    samples           what a sample holds, and a batch of them
    loader            transcripts → samples and batches for torch, packed while they are read
    block_dataset     the same from a finished dataset

The last four import torch at the top; nothing else here does, and nothing else imports them.
"""
