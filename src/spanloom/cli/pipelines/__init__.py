"""Commands about whole pipelines.

tasks  a pipeline as a list of tasks, for any engine: `spanloom tasks`
work   what passed between the steps is removed: `spanloom work clear`
"""
