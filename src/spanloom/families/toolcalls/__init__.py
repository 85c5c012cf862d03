"""Tool calls: conversations whose last turn calls a tool, harmful ones and those to retain → checked training files.

defaults        the defaults of all options
sample          small data of our own, in the shapes of the sources
control         the control strings of the format
tables          subtypes and weights
tools           registries of tools
schema          the JSON Schema of a sample
source          files of samples, line by line

findings        what a sample can be found wrong by: codes, their severity and order
calls           the calls in the text of a turn
rules           all rules on one sample
validation      all samples of a run, and against each other
report          the report: text, JSON, page

convert         public sources → samples: convert_b4, convert_agentdojo, convert_tau2, convert_ultrachat, convert_xstest
agentdojo/      where an injection stands in a trace, what it asks for, which calls and texts serve it
drafts, turns   what a converter makes of a record; messages of others → ours
ids             ids from contents
merge           many files → one, without duplicates
compatible      the same as the original program does it
batches         one harmful sample and those beside it
sampling        draws by source and by weight
spot_check      a few samples to look at

rendering       a sample → text, and where its answer stands
audit           whether a chat template shows samples as they are
tokenizer       a tokenizer.json → tokens and their offsets
masks           the tokens of the answer
training_files  rows of samples and of batches

steps/, build   the steps of the pipeline; tokens of both splits on one machine
dataset         what the shared commands ask of this family
verify          what must hold in every document on disk; verify_content: in the manifest; verify_source: of the samples
routes, serve   the HTTP service
loader          one harmful sample and N to retain in a step
training        an example that trains on them

The last two import torch at the top; nothing else here does.
"""
