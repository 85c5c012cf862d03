"""Chess, step 3: validates the prepared games. Only then is manifest.json written.

In: the files at `dataset_root`, and their source folders, of which some games are prepared again and compared.
Out: the validation report as JSON and HTML. Findings fail the run. The image has no python-chess (GPL-3.0): legal
moves are checked by `spanloom chess validate --legal` on a machine that has `spanloom[chess]`.
"""

from components.of_task import component_of

validate_chess = component_of("chess.task_list", "validate-chess")
