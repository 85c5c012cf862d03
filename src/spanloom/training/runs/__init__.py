"""What training examples share around a model.

script         flags, the process group, exit codes
step           the loss per span of a step, its gradient and figures
groups         documents of valid by a column of the rows
learning_rate  the learning rate of a step
passes         passes over sharded samples, which resume where they stopped
checkpoint     checkpoints, written completely or not at all
trainlog       the log of a run
"""
