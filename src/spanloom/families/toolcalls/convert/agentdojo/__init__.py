"""AgentDojo: locates the injection in a trace, what it asks for, and whether the model complied.

text        tool results → plain text, without the quoting and line folding that tools add
injections  messages → the injection, found by the record's own texts, a goal, or the marks of known attacks
targets     an injected instruction → its targets: addresses, accounts, sites, quoted texts, names
serving     the calls after an injection → those that carry it out, begin it, or may do so
answers     the texts after an injection → how they react to it
samples     traces → samples, decided by the modules above
"""
