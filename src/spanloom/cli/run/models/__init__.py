"""Commands for any Hugging Face model.

audit  audit
"""
