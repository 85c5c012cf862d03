"""The benchmark: how fast is a build, against the plain route and its peers, and does its memory follow the rows?

Run it with `PYTHONPATH=tests python -m tools.bench --help`. It asserts nothing about time; people read its tables.

    texts.py           text that lies on this machine, every paragraph once
    corpus.py          → sources: conversations for speed, tiny rows for memory
    processes.py       a command in a process of its own: seconds, stages, memory of parent, workers and validator
    plain.py           the plain route, the baseline: the openai-harmony wrapper, lists, one add_item a row
    speed.py           plain route and `spanloom build` at two sizes → marginal tokens a second
    pieces.py          the o200k vocabulary for peers that want merges and a tokenizer.json
    preprocess.py      Megatron's own route, from rendered text
    chat_template.py   a Hugging Face route, with assistant masks
    model_proof.py     proving each run of a model's template, and encoding alone, against transformers
    model_build.py     `spanloom build --model` as a whole, by path and by the full proof; long conversations; memory
    convert.py         `spanloom convert` against another checkout: `python -m tools.bench.convert --baseline DIR`
    peers.py           the record route and both of these, and what of their result equals the record
    encoders.py        content text to tokens by every candidate, cold, and on every code point
    stages.py          what a worker does, stage by stage; the steps alone; validation; start-up
    writing.py         write-indexed and its writer against tofile, hashing apart
    alone.py           runs these two, the demo's build and the real rows, and sums them up
    opening.py         opening many shards for training against Megatron's own class
    step_memory.py     memory and disk of each step of the pipeline, over many tiny rows
    memory.py          `spanloom build` at two sizes of tiny rows → bytes a row
    loading.py         documents of a loader against slices of three memory maps
    packing.py         packed chat: blocks against a loop and a copy, transcripts to tokens, memory of a long stream
    tables.py          what a person reads
    bars.py            what the build was meant to reach, and whether it does
    page.py            results as JSON → Markdown tables and the plot
    pipeline_model.py  bytes, memory and hours of the pipeline from these rates; a simulation of it
    scale.py           → docs/deployment/scale.md
"""
