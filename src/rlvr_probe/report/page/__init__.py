"""Writes the report as one HTML file that asks nothing of any network.

:mod:`document` gathers what is on the page, :mod:`write` puts it into ``page.html`` with the
styles of ``page.css`` and the scripts of ``scripts/``. Numbers are counted over everything: only
what is drawn is a sample, and the page says of what.
"""

from rlvr_probe.report.page.write import page_text, write_page

__all__ = ["page_text", "write_page"]
