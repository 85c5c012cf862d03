"""Training against a teacher.

loss      the divergence from a teacher's most probable tokens, per label
megatron  the same inside Megatron-LM's training loop
"""
