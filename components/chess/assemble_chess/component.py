"""Chess, step 2: one pending manifest from the inventories of all shards.

In: the inventories, one input each. Out: manifest.pending.json at `dataset_root`, and a small artifact that points
there.
"""

from functools import partial

from components.of_task import component_of

assemble_chess_of = partial(component_of, "chess.task_list", "assemble-chess", outputs=("dataset", "metrics"))
assemble_chess = assemble_chess_of()
