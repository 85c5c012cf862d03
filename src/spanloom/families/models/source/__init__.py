"""The source folders that datasets of any model are made from, and what a row of them holds.

formats  the formats that are taken
harmony  messages of Harmony → a conversation of any model
rows     a row → what is proven of it, its weight, what is shown of it
"""
