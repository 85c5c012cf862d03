"""Public sources → samples.

sources     the conversion: one converter per source, and their common code
drafts      the types that converters share
dialogues   records as `spanloom.conversations` reads them → messages of a sample, and the texts of its answers
goals       the goals of AgentDojo's injection tasks
agentdojo/  traces of AgentDojo
b4          Fujitsu's B4, orchestrated attacks
messages    your own chat data of any form
tau2        simulations of TAU2
ultrachat   dialogues of UltraChat
xstest      prompts of XSTest
"""
