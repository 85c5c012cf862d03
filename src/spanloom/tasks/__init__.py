"""A pipeline as a list of stages, for any engine that runs commands. Nothing here runs anything.

stage   a stage: its command once a shard, what it needs, which stages are before it
listed  a family's task list → stages
slurm   stages → the files that Slurm is given
"""
