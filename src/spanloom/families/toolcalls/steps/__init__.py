"""The steps of the tool-call pipeline, each a function over local paths and a `run` over places.

convert_toolcalls   public sources → samples
validate_toolcalls  samples checked against all rules
merge_toolcalls     files of samples → one
audit_toolcalls     a chat template checked against samples
tokenize_toolcalls  samples → a token dataset
"""
