"""The source folders that datasets of any model are made from, and the content of their rows.

harmony  Harmony messages → a conversation for any model
rows     a row → the conversation to be proven, its weight, what the template does not read
"""
