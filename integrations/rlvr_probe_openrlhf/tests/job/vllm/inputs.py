"""See ``vllm``."""

from __future__ import annotations

from typing import Any


def TokensPrompt(prompt_token_ids: list[int], **more: Any) -> dict[str, Any]:
    return {"prompt_token_ids": prompt_token_ids, **more}
