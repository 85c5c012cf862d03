"""A process that does without pandas makes arrays with pyarrow; who asks for pandas after all gets it."""

import subprocess
import sys

SCRIPT = """
import sys
from importlib.util import find_spec

from spanloom.no_pandas import allow_pandas, leave_out_pandas

leave_out_pandas()
leave_out_pandas()
import pyarrow as pa

assert pa.array([1, 2]).to_numpy().tolist() == [1, 2]
assert "pandas" not in sys.modules
assert find_spec("pandas") is not None, "it is installed, and says so"
try:
    import pandas
except ImportError:
    pass
else:
    raise AssertionError("it was imported")
allow_pandas()
allow_pandas()
import pandas

assert pandas.Series([1, 2]).tolist() == [1, 2]
"""


def test_pyarrow_does_without_pandas_until_it_is_allowed() -> None:
    subprocess.run([sys.executable, "-c", SCRIPT], check=True)
