"""The GPU-second ledger: where the time of every GPU went, so that it adds up to all of it."""

from rlvr_probe.analysis.ledger.categories import CATEGORIES, FAMILIES, MEANING, NAMES
from rlvr_probe.analysis.ledger.ledger import Extent, Ledger, find_extent, make_ledger

__all__ = [
    "CATEGORIES",
    "FAMILIES",
    "MEANING",
    "NAMES",
    "Extent",
    "Ledger",
    "find_extent",
    "make_ledger",
]
