"""Spanloom: training-ready token datasets whose supervision is aligned token by token.

The floor plan, in the order in which imports may run:

    cli → build · places · fetch → steps → harmony · megatron · report → manifest → storage → provenance
        → supervision · split · findings

`harmony` is the SYNTH KD family (raw rows → conversations → tokens with spans); `megatron` writes and reads
IndexedDatasets; `steps` holds one module for each step of the pipeline; `build` runs all of them on one machine;
`places` runs one of them over local paths and `gs://` or `s3://` URIs; `fetch` brings a dataset from a bucket.
"""

from importlib.metadata import version

__version__ = version("spanloom")
