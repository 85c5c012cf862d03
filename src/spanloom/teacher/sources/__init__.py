"""Where scores come from.

teacher  what every source is
answers  answers of servers and of vLLM → signals
hugging  a causal language model of `transformers` in this process
server   an OpenAI-compatible server
vllm     vLLM in this process
"""
