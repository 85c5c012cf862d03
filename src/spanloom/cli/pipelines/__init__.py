"""Commands about whole pipelines.

tasks  a pipeline as a list of tasks, for any engine: `spanloom tasks`
work   removes data that passed between steps: `spanloom work clear`
"""
