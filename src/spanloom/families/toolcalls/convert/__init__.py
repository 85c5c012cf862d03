"""Public sources → samples.

sources     one converter a source, and what they have in common
drafts      what a converter makes of a record
goals       the goals of AgentDojo's injection tasks
agentdojo/  traces of AgentDojo
b4          Fujitsu's B4, orchestrated attacks
messages    OpenAI messages of your own
tau2        simulations of TAU2
ultrachat   dialogues of UltraChat
xstest      prompts of XSTest
"""
