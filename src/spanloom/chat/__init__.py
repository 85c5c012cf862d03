"""The packed chat family: conversations → transcripts → one stream of tokens → blocks of one length with a loss mask.

In the order in which data flows:

    sources        files found and opened, lines and rows with their places
    conversations  JSONL and Parquet of many manners → messages of role and text
    generate       conversations → transcripts, with the length filter
    transcripts    transcripts in files: Parquet, JSONL, lines of text
    tokenizer      transcripts → tokens, and the ids of the markers
    markers        the control strings, their ids, and where they stand in a stream
    packing        the stream → blocks: boundary injection and the stop rule
    masks          a finished block → which of its tokens carry loss; targets
    records        transcripts numbered, as the stream that is packed takes them
    blocks         finished blocks as they stand on disk, and the config that a manifest records
    verify         what must hold in every block on disk, worked out anew
    vocabulary     what each token stands for, for people who look at blocks
    sample         small conversations of our own
    loader         transcripts, or a finished dataset → samples and batches for torch
    training       an example that trains on them

loader and training import torch at the top; nothing else here does, and nothing else imports them.
"""
