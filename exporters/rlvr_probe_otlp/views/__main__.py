"""Writes the dashboards: ``python -m rlvr_probe_otlp.views``."""

from __future__ import annotations

from rlvr_probe_otlp.views.dashboards import FOLDER, files


def main() -> None:
    """Write every file anew."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for path, text in files():
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
