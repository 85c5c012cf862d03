"""A Hugging Face route: `apply_chat_template` with assistant masks over a fast tokenizer, rows to Parquet.

In: a `synth_harmony_v1` folder and the vocabulary as a tokenizer.json. Out: Parquet with `input_ids` and
`assistant_masks`. `python -m tools.bench.chat_template SOURCE OUT --tokenizer-json FILE` prints its tokens as JSON.

What it lacks beside `spanloom build`: spans (one mask for all that the assistant says), splits, checks, manifest,
validation, Megatron's files. The template is written for the conversations of this benchmark, not for all of Harmony;
and specials are read out of the rendered text, so content can forge them.
"""

import argparse
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

BATCH_ROWS = 256
TEMPLATE = """
{%- for message in messages -%}
{%- set part = message.content[0] -%}
{%- if message.role == 'system' -%}
<|start|>system<|message|>{{ part.model_identity }}
Knowledge cutoff: {{ part.knowledge_cutoff }}
Current date: {{ part.conversation_start_date }}

Reasoning: {{ part.reasoning_effort | lower }}

# Valid channels: {{ part.channel_config.valid_channels | join(', ') }}. Channel must be included for every message.
{#- -#}
<|end|>
{%- elif message.role == 'developer' -%}
<|start|>developer<|message|># Instructions

{{ part.instructions }}<|end|>
{%- elif message.role == 'assistant' -%}
{%- generation -%}
<|start|>assistant<|channel|>{{ message.channel }}<|message|>{{ part.text }}
{#- -#}
{%- if loop.last and message.channel == 'final' -%}<|return|>{%- else -%}<|end|>{%- endif -%}
{%- endgeneration -%}
{%- else -%}
<|start|>{{ message.role }}<|message|>{{ part.text }}<|end|>
{%- endif -%}
{%- endfor -%}
<|endoftext|>
"""

SCHEMA = pa.schema([("input_ids", pa.list_(pa.int32())), ("assistant_masks", pa.list_(pa.uint8()))])


def write_masked(source: Path, out: Path, tokenizer_json: Path) -> int:
    """Writes `out`/masked.parquet, all shards in a row. Returns the tokens written."""
    from transformers import PreTrainedTokenizerFast

    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(tokenizer_json), chat_template=TEMPLATE.strip())
    out.mkdir(parents=True)
    written = 0
    with pq.ParquetWriter(out / "masked.parquet", SCHEMA, compression="lz4") as writer:
        for path in sorted(source.glob("*.parquet")):
            for batch in pq.ParquetFile(path).iter_batches(batch_size=BATCH_ROWS, columns=["messages_json"]):
                conversations = [json.loads(row)["messages"] for row in batch.column(0).to_pylist()]
                encoded = tokenizer.apply_chat_template(
                    conversations, tokenize=True, return_dict=True, return_assistant_tokens_mask=True
                )
                columns = {name: encoded[name] for name in SCHEMA.names}
                writer.write_batch(pa.RecordBatch.from_pydict(columns, schema=SCHEMA))
                written += sum(map(len, columns["input_ids"]))
    return written


def read_arrays(out: Path) -> tuple[np.ndarray, np.ndarray]:
    """Tokens and mask of all rows, end to end."""
    table = pq.read_table(out / "masked.parquet")
    flat = [pa.concat_arrays(table.column(name).chunks).flatten().to_numpy() for name in SCHEMA.names]
    return flat[0], flat[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("source", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--tokenizer-json", type=Path, required=True)
    given = parser.parse_args()
    print(json.dumps({"tokens": write_masked(given.source, given.out, given.tokenizer_json)}))


if __name__ == "__main__":
    main()
