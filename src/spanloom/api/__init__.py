"""The functions of `import spanloom`, which the commands of the same names call.

building    `build`: a source → a validated dataset
converting  `convert`: chat data → a source
validating  `validate`: checks a dataset
exporting   `export` and `plan`: a dataset for a trainer
looking     `inspect`
auditing    `audit`
scoring     `teacher score` and `teacher validate`
options     the options of `build` and `convert`
messages    `export --to messages`
export_options  those of `export` and `plan`
documents   `open_dataset`: the documents of a dataset, without Megatron and torch
"""
