"""Options, declared once: what commands, steps of pipelines and the Python API are made from.

option    the help of an option: what a field of a dataclass is `Annotated` with
places    places that several steps read or write
shared    options of commands, steps and the Python API
keywords  functions of the Python API, made from such dataclasses
config    a file of options for a command, and the options as such a file
endless   files of settings whose reading may never end
overwriting  no command writes over what it reads
"""
