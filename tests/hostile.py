"""Names that a recording may hold, to be shown as what they are."""

from __future__ import annotations

from typing import Final

__all__ = ["HOSTILE"]

HOSTILE: Final = (
    "</script><script>document.title='owned'</script>",
    "<img src=x onerror=\"document.title='owned'\">",
    "<!--<script>",
    "]]>&lt;b&gt;\"'`${document.title='owned'}",
    "a\x00\x07\x1b[31m\r\u2028b",
    "\u202egnp.exe\u2066\u200b",
    "é漢字🙂" * 3,
)
