"""A dataset of traces as files for trainers.

lines              ids → JSON Lines in four formats
file               an export as a file: JSON Lines or Parquet
training_manifest  the YAML that Tunix takes
"""
