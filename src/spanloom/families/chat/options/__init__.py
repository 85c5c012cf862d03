"""The options of packed chat, with their help.

generate  of transcripts
pack      of blocks
"""
