"""The flight recorder of RL post-training.

::

    import rlvr_probe

    rlvr_probe.attach()

records rollout generation, reward verification and trainer steps of unmodified frameworks, at a
cost nobody notices. What comes of a recording is the command ``rlvr-probe``.
"""

from rlvr_probe._attach import Attachment, attach, detach
from rlvr_probe.config import Config
from rlvr_probe.spans import span

__all__ = ["Attachment", "Config", "attach", "detach", "span"]
