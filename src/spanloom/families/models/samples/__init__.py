"""Conversations and a model of our own, to try templates and the family without a download.

conversations  forty conversations that find faults of chat templates
model          a small model's folder and these conversations as files
"""
