"""A teacher, step 2, once per task: the signals that score-teacher has published, checked against their dataset.

In: the inventory of score-teacher. Out: the same, validated; none if anything is found.
"""

from components.of_task import component_of

validate_teacher = component_of("teacher_task_list", "validate-teacher")
