"""See ``vllm``."""

from __future__ import annotations

from typing import Any


class StatelessProcessGroup:
    @staticmethod
    def create(*_: Any, **__: Any) -> None:
        return None
