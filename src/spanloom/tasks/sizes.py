"""The scratch volume of a task.

Constants alone: `components/of_task.py` runs the file where Spanloom is not installed.
"""

import re

SCRATCH = "200Gi"
"""Its size by default."""

QUANTITY = re.compile(r"(?=.*[1-9])(?:\d+\.?\d*|\.\d+)(?:[KMGTPE]i|[kMGTPE]|[eE]\+?\d{1,2})?")
"""Sizes of Kubernetes above 0. It takes no `GB`, and no capital K without i."""
