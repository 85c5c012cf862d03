"""Tool calls: harmful and retain conversations whose last turn may call a tool → checked training files.

defaults          the defaults of all options
options           options that commands, steps and builds share
task_list.toml  the pipeline as a list of tasks
format/           the sample format: control strings, tables, tools, calls, ids; its files and its text

rules             all rules for one sample
validation        all samples of a run, alone and against each other
report            the report: text, JSON, page
convert/          public sources → samples
merge/            many files → one, without duplicates
samples/          small data in the formats of the sources; draws by source and by weight

audit             whether a chat template renders samples unchanged
tokens/           samples → tokens and the mask of the answer
steps/            the steps of the pipeline
verify/           the checks of a token dataset
dataset           the interface of this family to the shared commands
recipe            how the samples of one split become documents
build             token datasets of both splits on one machine
service/          the HTTP service

loader            steps of one harmful and N retain samples

Only `loader` imports torch at the top. `registries/` holds the tools that samples name.
"""
