"""Stands for the way of the weights from rank 0 to the engines: they end in the books."""

from __future__ import annotations

import hashlib
import time
from typing import Any

from openrlhf_cpu_books import write


class PyNcclCommunicator:
    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def broadcast(self, tensor: Any, **_: Any) -> None:
        digest = hashlib.sha256(tensor.detach().float().contiguous().numpy().tobytes())
        write("weights", digest=digest.hexdigest(), end=time.monotonic_ns())
