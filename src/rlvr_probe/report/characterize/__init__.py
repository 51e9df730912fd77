"""What ``rlvr-probe characterize`` says: on a terminal, and as JSON."""

from rlvr_probe.report.characterize.document import CHARACTERIZE_SCHEMA_VERSION, to_document
from rlvr_probe.report.characterize.screen import lay_out_characterization

__all__ = ["CHARACTERIZE_SCHEMA_VERSION", "lay_out_characterization", "to_document"]
