"""Finished segments as Parquet: fine rows in columns, every other line as it was.

What was written comes out again byte by byte, so that every reader of journals takes either form;
one of whole recordings takes the columns as they are.
"""

from importlib.util import find_spec

from rlvr_probe.exceptions import ProbeError

if find_spec("duckdb") is None:
    raise ProbeError(
        "compacted journals are Parquet, which takes duckdb, not installed here; install with"
        " pip install 'rlvr-probe[cli]'"
    )
