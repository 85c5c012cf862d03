"""The SYNTH KD family: raw SYNTH rows → Harmony conversations → token documents with spans.

In the order in which data flows:

    sample         a small raw sample of our own, for the demo
    synth          raw SYNTH Parquet → `synth_harmony_v1` shards with a manifest
    source         `synth_harmony_v1` opened, checked and read in batches
    caps           limits on rows and tokens, divided over the shards
    rejects        why a row is refused, and how many refusals a build may take
    strict_json    JSON without repeated keys, fast
    conversations  one row's JSON → a checked conversation and the span of each of its messages
    tokenizer      openai-harmony's encoding over the pinned asset, and its special ids
    record         conversations → documents through openai-harmony alone: what counts
    fast           conversations → documents through a table and the o200k encoder: the same bits
    audit          sampled rows of the fast route held against the record route
    render         which of the two
    part           one part of a shard rendered in one worker process
    rendered       the artifact that carries them between steps
    split_files    which rows are valid, as files
    config         what of the options changes the bytes
    structure      spans read off finished tokens alone, for validation
    verify         what must hold in every document on disk
    oracle         one row the slow way, as a reference
    resample       sampled source rows held against a finished dataset
"""
