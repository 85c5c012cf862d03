"""Chess, step 1, once per shard: its share of the Parquet files → memory-mapped arrays under the root.

In: the URIs of a folder of games and of one of thinking rows; one of them may be empty. Out: the arrays, published
create-only at `dataset_root` by the step itself, and the inventory, with the result for each file.
"""

from components.of_task import component_of

prepare_chess = component_of("chess.task_list", "prepare-chess")
