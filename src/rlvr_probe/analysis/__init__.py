"""What a trace tells beyond what was recorded in any one place."""

from rlvr_probe.analysis.device_use import Attribution, SpanUse
from rlvr_probe.analysis.stage_devices import StageDevices, stage_devices

__all__ = ["Attribution", "SpanUse", "StageDevices", "stage_devices"]
