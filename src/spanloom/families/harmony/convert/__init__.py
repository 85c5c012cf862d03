"""Data of others → source folders of Harmony conversations.

synth       raw SYNTH Parquet → `synth_harmony_v1`
messages    turns → the messages of a whole Harmony conversation
rendered    rendered text of Harmony → messages, by openai-harmony
conversion  records → rows of a shard, without files
chat        chat data of any form → `harmony_conversations_v1`
preview     a converted conversation as a build makes documents of it
"""
