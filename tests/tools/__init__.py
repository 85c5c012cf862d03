"""Programs that measure, damage and kill what the tests only sample. `make help-all` lists their commands.

bench       benchmarks against a baseline in the same run
chaos       each change of the file system failed or killed in turn
corruption  each byte, value and file of a dataset damaged in turn
mutants     faults put into copies of the sources
"""
