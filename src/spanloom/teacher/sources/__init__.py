"""Where scores come from.

options  the options of a teacher
chosen   the teacher of some options, whose tokenizer is that of a dataset
teacher  what every source is
answers  answers of servers and of vLLM → signals
hugging  a causal language model of `transformers` in this process
server   an OpenAI-compatible server
vllm     vLLM in this process
distillkit  a capture of DistillKit: what others have scored
"""
