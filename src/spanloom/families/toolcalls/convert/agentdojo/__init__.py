"""AgentDojo: where an injection is in a trace, what it asks for, and whether the model did it.

text        tool results → plain text, without the quoting and line folding that tools add
injections  messages → the injection, by the record's own texts, a goal, or the marks of known attacks
targets     an injected instruction → what it names: addresses, accounts, sites, quoted texts, names
serving     the calls behind an injection → those that carry it out, begin it, or may
answers     the texts behind an injection → what they say of it
samples     what of a trace becomes a sample, by these
"""
