"""A pipeline as a list of stages, for any engine that runs commands. Nothing here runs anything.

sizes   the size of a scratch volume: default, and what Kubernetes takes
stage   a stage: its command, once per shard, its resources, the stages before it
listed  a family's task list → stages
slurm   stages → the files for Slurm
"""
