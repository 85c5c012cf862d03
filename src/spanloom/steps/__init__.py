"""Steps of the pipelines that every family shares, one module each; a family's own are in `families/NAME/steps`.

validate_alignment   is the dataset right? Only then does the pending manifest become the manifest
"""
