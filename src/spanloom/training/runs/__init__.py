"""What training examples share around a model.

script         flags, and the process group
learning_rate  the learning rate of a step
passes         passes over sharded samples, which resume where they stopped
checkpoint     checkpoints, written completely or not at all
trainlog       the log of a run
"""
