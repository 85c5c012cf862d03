"""A teacher, step 3: the manifest of the signals from the inventories of all tasks.

In: the inventories, one input each. Out: `without.jsonl` and `teacher.json` below `signals_root`.
"""

from functools import partial

from components.of_task import component_of

join_teacher_of = partial(component_of, "teacher_task_list", "join-teacher")
join_teacher = join_teacher_of()
