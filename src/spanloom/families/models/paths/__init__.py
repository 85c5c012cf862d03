"""Documents of conversations by the paths of a template, equal to those of the full proof.

A path is what the template tests of a conversation, see `tokenizers.template_paths`. What the full proof has proven for
one run of a path holds for each run on it. Whatever a path has no rule for goes to the full proof; so does every
conversation that would be refused, so that refusals are the full proof's.

leaves   what a leaf writes: texts of its message, calls, tools, or something that no rule covers
clean    added tokens at which a text may be cut and its parts encoded apart
independent  paths that other texts in place of a run's do not change
body     what the messages of a prefix write, in time of what is new
runs     a run by its path: its text, where its texts and its stop are
chain    the runs of a conversation that share a document
prover   conversations → documents; each new layout is confirmed by the full proof
"""
