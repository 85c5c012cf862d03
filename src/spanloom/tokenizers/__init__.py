"""Tokenizers that several families share.

o200k/            the o200k vocabulary: its pinned asset, the encoder, token → bytes
json_file         a tokenizer.json: loaded, and token → bytes
token_texts       tokens → their text and characters, by the bytes of all tokens
json_limits       limits on what such a file may cost and do
trial             such a file, loaded in a process with limits first
packages          files of registry packages, for set-up
encoding          texts → ids and offsets by a tokenizer.json
control_texts     control tokens in texts, encoded as ordinary text
json_ids          texts → ids by the fast encoder of such a file; the characters of each token
chat_template     messages → text by a Jinja template
rendering/        the process that templates run in, with limits
template_paths/   a template rendered once for each outcome of its tests, then walked
traced_text       texts whose characters remember their field, through a template
character_spans   a span of characters → the tokens that start inside it
"""
