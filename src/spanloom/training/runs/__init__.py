"""What training examples share around a model.

script         flags, and the process group
learning_rate  the learning rate of a step
passes         passes over samples read in shards, which go on where they stopped
checkpoint     checkpoints, whole or not at all
trainlog       what a run says of itself
"""
