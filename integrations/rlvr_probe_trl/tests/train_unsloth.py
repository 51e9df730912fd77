"""A TRL training whose trainer was written anew, as ``unsloth.models.rl`` does.

Unsloth 2026.10 takes the source of each TRL trainer, changes it, executes it under a new name in a
module of its own and binds TRL's names to what came out, after the user attached. Here the source
is executed unchanged, for Unsloth itself needs a GPU; the rest is ``train.py``, with its options.
"""

from __future__ import annotations

import importlib.util
import inspect
import re
import sys
from pathlib import Path

from rlvr_probe_trl.tests import train as real

WRAPPER = """

class UnslothGRPOTrainer(_UnslothGRPOTrainer):
    def __init__(self, model=None, args=None, **kwargs):
        super().__init__(model=model, args=args, **kwargs)
        print("built", type(self).__module__, type(self).__name__)
"""


def rebind(cache: Path) -> None:
    """Bind ``trl.GRPOTrainer`` to TRL's own source, executed as ``UnslothGRPOTrainer``."""
    import trl
    from trl.trainer import grpo_trainer

    source = inspect.getsource(grpo_trainer)
    source = re.sub(r"^from \.\.\.?(\w)", r"from trl.\1", source, flags=re.MULTILINE)
    source = re.sub(r"^from \.(\w)", r"from trl.trainer.\1", source, flags=re.MULTILINE)
    source, count = re.subn(
        r"^class GRPOTrainer\(", "class _UnslothGRPOTrainer(", source, flags=re.M
    )
    assert count == 1
    path = cache / "UnslothGRPOTrainer.py"
    cache.mkdir(parents=True, exist_ok=True)
    path.write_text(source + WRAPPER)
    spec = importlib.util.spec_from_file_location("UnslothGRPOTrainer", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["UnslothGRPOTrainer"] = module
    spec.loader.exec_module(module)
    for holder in (grpo_trainer, trl.trainer, trl):
        holder.GRPOTrainer = module.UnslothGRPOTrainer


if __name__ == "__main__":
    if "--attach" in sys.argv:
        place = sys.argv.index("--attach")
        if sys.argv[place + 1] != "no":
            import trl

            _ = trl.GRPOTrainer  # the classes that will not be used are there before the probe
            real.attach()
        sys.argv[place + 1] = "no"
    rebind(real.options().out.parent / "unsloth_compiled_cache")
    real.main()
