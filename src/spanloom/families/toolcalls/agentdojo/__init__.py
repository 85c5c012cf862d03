"""What a trace of AgentDojo shows: where an injection stands, what it asks for, and whether the model did it.

text        tool results → plain text, without the quoting and line folding that tools add
goals       the goals of injection tasks, from a file or from an installed `agentdojo`
injections  messages → the injection, by the record's own texts, a goal, or the marks of known attacks
targets     an injected instruction → what it names: addresses, accounts, sites, quoted texts, names
serving     the turns behind an injection → the call that carries it out, calls that begin to, texts that speak of it

`convert_agentdojo` decides from these what becomes a sample.
"""
