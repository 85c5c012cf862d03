"""A teacher, step 1, once per task: the shards of a dataset that are its own → their signals.

In: the URIs of a dataset's root and of a model's folder. Out: the arrays of the signals, published create-only below
`signals_root` by the step itself, and the inventory of the task. For an empty parameter the step's default applies.
"""

from components.of_task import component_of

score_teacher = component_of("models.steps.teacher_task_list", "score-teacher")
