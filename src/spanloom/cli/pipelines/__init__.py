"""Commands about whole pipelines.

tasks      a pipeline as a list of tasks, for any engine: `spanloom tasks`
preflight  what would fail its tasks, before they start: `spanloom preflight`
work       removes data that passed between steps: `spanloom work clear`
"""
