"""The steps of the tool-call pipeline. Each has a `run` that takes local paths or URIs.

convert_toolcalls   public sources → samples
validate_toolcalls  samples checked against all rules
merge_toolcalls     files of samples → one
audit_toolcalls     a chat template checked against samples
tokenize_toolcalls  samples → a token dataset
"""
