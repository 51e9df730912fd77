"""Every error rlvr-probe raises on purpose.

::

    ProbeError
    ├── NotAttachable     a framework asked for by name cannot be hooked here
    ├── ConfigError       an argument or RLVR_PROBE_* variable has an unusable value
    ├── RecordingError    a recording cannot be read, or is not one
    ├── WorkloadError     a recording holds no workload that can be converted
    ├── StorageError      object storage does not answer, or refuses
    ├── SteeringError     a workload cannot be replayed, or not by this command as it is set
    └── ValidationError   a workload directory breaks its format

Inside the user's training run none of these is raised, except ``NotAttachable`` and ``ConfigError``
from ``attach()`` itself, and ``SteeringError`` in a run that ``rlvr-probe replay`` started: one
that went on would be another workload. A message says what was found, what was expected and
what to do.
"""

__all__ = [
    "ConfigError",
    "NotAttachable",
    "ProbeError",
    "RecordingError",
    "SteeringError",
    "StorageError",
    "ValidationError",
    "WorkloadError",
]


class ProbeError(Exception):
    """Root of every error rlvr-probe raises on purpose."""


class NotAttachable(ProbeError):
    """A framework that was asked for by name cannot be hooked in this process."""


class ConfigError(ProbeError):
    """An argument or ``RLVR_PROBE_*`` variable has a value that cannot be used."""


class RecordingError(ProbeError):
    """A path holds no recording, or the recording cannot be read."""


class WorkloadError(ProbeError):
    """A recording holds nothing that can be converted, or two jobs that cannot be distinguished."""


class StorageError(ProbeError):
    """Object storage does not answer, or refuses.

    Attributes:
        kind: Class of the error that its library raised; a message may hold what is secret.
    """

    def __init__(self, message: str, kind: str) -> None:
        super().__init__(message)
        self.kind = kind


class SteeringError(ProbeError):
    """A workload cannot be replayed at all, or not by a run as it is set."""


class ValidationError(ProbeError):
    """A workload directory breaks the format it claims to have."""
