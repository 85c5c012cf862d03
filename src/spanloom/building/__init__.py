"""The machine that makes token datasets; a family gives what is its own.

ordered  jobs done by worker processes, results in order
"""
