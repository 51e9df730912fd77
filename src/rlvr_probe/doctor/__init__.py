"""What ``attach()`` would find in this Python, and what it would miss.

Looks only: no framework is imported, nothing is recorded, and of what it writes nothing stays.
"""

from rlvr_probe.doctor.examine import Examination, examine
from rlvr_probe.doctor.report import lay_out

__all__ = ["Examination", "examine", "lay_out"]
