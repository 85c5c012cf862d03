"""What people see while something runs and when it is done.

progress   live bars on a terminal, plain lines elsewhere, nothing when silent
summary    a dataset and its validation as a short table
"""
