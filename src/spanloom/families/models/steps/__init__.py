"""The step of the family, and the pipeline whose steps take a dataset of any family and a model.

tokenize_conversations  a source and a model's folder → a token dataset, not validated yet
teacher_task_list       a dataset and a model's folder → the model's signals
"""
