"""Commands for any Hugging Face model.

audit    audit
teacher  teacher score, teacher validate
"""
