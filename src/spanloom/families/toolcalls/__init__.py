"""Tool calls: conversations whose last turn calls a tool, harmful ones and those to retain → checked training files.

defaults    the defaults of all options
task_list   the pipeline as a list of tasks
sample      small data of our own, in the shapes of the sources
format/     what a sample is: control strings, tables, tools, calls, ids; its files and its text

rules       all rules on one sample
validation  all samples of a run, and against each other
report      the report: text, JSON, page
convert/    public sources → samples
merge/      many files → one, without duplicates
sampling    draws by source and by weight

audit       whether a chat template shows samples as they are
tokens/     samples → tokens and the mask of the answer
steps/      the steps of the pipeline
verify/     what must hold in a token dataset
dataset     what the shared commands ask of this family
build       tokens of both splits on one machine
service/    the HTTP service

loader      one harmful sample and N to retain in a step
training    an example that trains on them

The last two import torch at the top; nothing else here does. `registries/` holds the tools that samples name.
"""
