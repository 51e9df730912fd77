"""attach() and detach() on a toy framework with a third party's integration."""

from __future__ import annotations

import importlib
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import rlvr_probe
from rlvr_probe import exceptions, guard, registry
from rlvr_probe.config import Config
from rlvr_probe.probe import attach, hooks
from rlvr_probe.registry import inside
from tests import toy
from tests.unit.test_recorder import rows


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    folder = tmp_path / "site"
    toy.install(folder)
    monkeypatch.syspath_prepend(str(folder))
    importlib.invalidate_caches()
    yield tmp_path / "runs"
    rlvr_probe.detach()
    for name in ("toyrl", "rlvr_probe_toyrl"):
        sys.modules.pop(name, None)


@pytest.mark.parametrize("first", ["attach", "import"])
def test_attach_works_before_and_after_the_import(installed: Path, first: str) -> None:
    if first == "import":
        importlib.import_module("toyrl")
    attachment = rlvr_probe.attach(out=installed, frameworks=["toyrl"])
    toyrl = importlib.import_module("toyrl")
    status = attachment.frameworks["toyrl"]
    assert (status.state, status.version, status.hook_points) == ("attached", "1.2.3", 3)
    assert str(attachment).endswith("toyrl 1.2.3 attached, 3 hook points")
    toyrl.Trainer(lambda rows: [1.0] * len(rows)).train()
    rlvr_probe.detach()
    defined = {row[1]: row[3] for row in rows(attachment.folder, "def")}
    recorded = [defined[row[0]] for row in rows(attachment.folder)]
    assert {name: recorded.count(name) for name in sorted(set(recorded))} == {
        "reward_fn": 3, "rollout": 3, "session": 1, "step": 3, "trajectories": 3,
    }  # fmt: skip


def test_waiting_is_not_called_attached(installed: Path) -> None:
    attachment = rlvr_probe.attach(out=installed, frameworks=["toyrl"])
    assert attachment.frameworks["toyrl"].state == "waiting"
    assert "toyrl" not in sys.modules


def test_attach_twice_is_attach_once(installed: Path) -> None:
    first = rlvr_probe.attach(out=installed, frameworks=["toyrl"])
    assert rlvr_probe.attach(out=installed) is first
    toyrl = importlib.import_module("toyrl")
    toyrl.Trainer(lambda rows: [0.0], steps=1).train()
    rlvr_probe.detach()
    defined = {row[1]: row[3] for row in rows(first.folder, "def")}
    assert [defined[row[0]] for row in rows(first.folder)].count("step") == 1


def test_detach_restores_everything(installed: Path) -> None:
    toyrl = importlib.import_module("toyrl")
    before = dict(vars(toyrl.Trainer))
    environ = dict(os.environ)
    threads = set(threading.enumerate())
    trainer = toyrl.Trainer(lambda rows: [0.0], steps=2)
    for _ in range(2):
        attachment = rlvr_probe.attach(out=installed, frameworks=["toyrl"])
        assert os.environ["RLVR_PROBE"] == "1"
        assert os.environ["RLVR_PROBE_RUN_ID"] == attachment.run
        trainer.train()
        rlvr_probe.detach()
        rlvr_probe.detach()
        assert dict(vars(toyrl.Trainer)) == before
        assert dict(os.environ) == environ
        assert set(threading.enumerate()) == threads
        recorded = len(rows(attachment.folder))
        trainer.train()
        assert len(rows(attachment.folder)) == recorded


def test_disabled_wins_over_everything(installed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLVR_PROBE_DISABLED", "1")
    toyrl = importlib.import_module("toyrl")
    before = dict(vars(toyrl.Trainer))
    attachment = rlvr_probe.attach(out=installed, frameworks=["toyrl", "no_such_framework"])
    assert not attachment.enabled
    assert str(attachment) == "rlvr-probe: disabled"
    toyrl.Trainer(lambda rows: [0.0]).train()
    with rlvr_probe.span("mine"):
        pass
    assert dict(vars(toyrl.Trainer)) == before
    assert not installed.exists()


def test_disabled_wins_over_a_configuration_made_by_hand(
    installed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RLVR_PROBE_DISABLED", "1")
    assert not rlvr_probe.attach(config=rlvr_probe.Config(out=installed)).enabled


def test_a_configuration_made_by_hand_is_checked_and_made_absolute(
    installed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(installed.parent)
    monkeypatch.setenv("RLVR_PROBE_RUN_ID", "not-this-one")
    with pytest.raises(exceptions.ConfigError, match="argument flush_s is '-1'"):
        rlvr_probe.attach(config=rlvr_probe.Config(flush_s=-1))
    attachment = rlvr_probe.attach(config=rlvr_probe.Config(out=Path("here"), run_id="mine"))
    assert attachment.folder == installed.parent / "here" / "mine"


def test_a_second_attach_asking_for_what_is_not_there_raises_and_changes_nothing(
    installed: Path,
) -> None:
    first = rlvr_probe.attach(out=installed)
    with pytest.raises(exceptions.NotAttachable, match="no_such cannot be attached"):
        rlvr_probe.attach(frameworks=["no_such"])
    assert rlvr_probe.attach() is first


def test_a_framework_asked_for_by_name_must_be_there(installed: Path) -> None:
    with pytest.raises(exceptions.NotAttachable, match=r"no_such.*installed are: .*toyrl"):
        rlvr_probe.attach(out=installed, frameworks=["no_such"])
    assert "RLVR_PROBE" not in os.environ


def test_an_absent_framework_is_no_error_by_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "site"
    toy.install(folder)
    (folder / "toyrl.py").unlink()
    for file in (folder / "toyrl-1.2.3.dist-info").iterdir():
        file.unlink()
    (folder / "toyrl-1.2.3.dist-info").rmdir()
    monkeypatch.syspath_prepend(str(folder))
    attachment = rlvr_probe.attach(out=tmp_path / "runs")
    assert str(attachment.frameworks["toyrl"]) == "toyrl absent: toyrl is not installed"


def test_an_untested_version_is_attached_with_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    toy.install(tmp_path / "site", version="2.0.0")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    importlib.invalidate_caches()
    attachment = rlvr_probe.attach(out=tmp_path / "runs", frameworks=["toyrl"])
    importlib.import_module("toyrl")
    sys.modules.pop("toyrl")
    sys.modules.pop("rlvr_probe_toyrl")
    assert attachment.frameworks["toyrl"].state == "attached"
    assert attachment.frameworks["toyrl"].reason == "tested with toyrl>=1,<2 only"


def test_two_integrations_of_one_name_are_reported_and_neither_is_used(
    installed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    info = tmp_path / "other" / "other-1.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: other\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[rlvr_probe.integrations]\ntoyrl = other:Adapter\n")
    monkeypatch.syspath_prepend(str(tmp_path / "other"))
    status = registry.discover(["toyrl"])["toyrl"]
    assert status.state == "failed"
    assert status.reason == (
        "two integrations claim it: other:Adapter and rlvr_probe_toyrl:ToyAdapter"
    )


@pytest.mark.parametrize("error", ["RuntimeError", "SystemExit"])
def test_a_broken_integration_breaks_nothing_else_and_is_counted(
    installed: Path, error: str
) -> None:
    (installed.parent / "site" / "rlvr_probe_toyrl.py").write_text(f"raise {error}('secret')")
    attachment = rlvr_probe.attach(out=installed)
    assert attachment.frameworks["toyrl"].state == "failed"
    assert guard.faults() == {("registry.load", error): 1}
    assert "secret" not in str(attachment)
    toyrl = importlib.import_module("toyrl")
    assert len(toyrl.Trainer(lambda rows: [0.0]).train()) == 3


@pytest.mark.parametrize(("variable", "said"), [("RLVR_PROBE_OWNER", 0), ("RANK", 0), ("X", 1)])
def test_a_name_in_the_environment_that_nobody_has_is_said_once_in_a_job(
    installed: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    variable: str,
    said: int,
) -> None:
    monkeypatch.setenv("RLVR_PROBE_FRAMEWORKS", "toyrl,tlr")
    monkeypatch.setenv(variable, "1")
    rlvr_probe.attach(out=installed)
    assert caplog.messages == said * [
        "unrecorded: tlr failed: no integration of this name is installed; installed are:"
        " openrlhf, ray, toyrl, trl, verl, vllm"
    ]


def test_a_hook_point_that_is_gone_is_said(installed: Path) -> None:
    source = installed.parent / "site" / "toyrl.py"
    source.write_text(source.read_text().replace("one_step", "another_name"))
    attachment = rlvr_probe.attach(out=installed, frameworks=["toyrl"])
    importlib.import_module("toyrl")
    status = attachment.frameworks["toyrl"]
    assert (status.state, status.hook_points) == ("attached", 2)
    assert status.reason == "toyrl:Trainer.one_step does not exist in 1.2.3"


def test_an_attach_during_a_detach_by_another_thread_is_in_effect(
    installed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = rlvr_probe.attach(out=installed, frameworks=())
    begun, undo = threading.Event(), first._patches.undo

    def slow() -> None:
        begun.set()
        time.sleep(0.3)
        undo()

    monkeypatch.setattr(first._patches, "undo", slow)
    detaching = threading.Thread(target=rlvr_probe.detach)
    detaching.start()
    assert begun.wait(60)
    second = rlvr_probe.attach(out=installed, frameworks=())
    detaching.join(60)
    assert second is not first
    assert hooks.recorder() is second._recorder is not None
    assert os.environ["RLVR_PROBE_RUN_ID"] == second.run
    first.detach()
    assert hooks.recorder() is second._recorder is not None


def test_a_recording_that_cannot_be_closed_at_once_keeps_no_other_thread_waiting(
    installed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environ = os.environ.get("RLVR_PROBE_OWNER")
    first = rlvr_probe.attach(out=installed, frameworks=())
    begun, go = threading.Event(), threading.Event()

    def hang(reason: str) -> None:
        begun.set()
        go.wait(60)

    monkeypatch.setattr(first._recorder, "close", hang)
    detaching = threading.Thread(target=rlvr_probe.detach)
    detaching.start()
    assert begun.wait(60)
    # As a call that was under way at the detach does, if its row is the first.
    assert first._recorder is not None
    os.environ["RLVR_PROBE_OWNER"] = first._recorder.process
    second = rlvr_probe.attach(out=installed, frameworks=())
    go.set()
    detaching.join(60)
    assert hooks.recorder() is second._recorder is not None
    rlvr_probe.detach()
    assert os.environ.get("RLVR_PROBE_OWNER") == environ


def test_the_first_row_adds_no_variable_while_other_threads_may_read_them(
    tmp_path: Path,
) -> None:
    before = set(os.environ)
    attachment = rlvr_probe.attach(out=tmp_path, frameworks=())
    attached = set(os.environ)
    with rlvr_probe.span("first"):
        pass
    assert attachment._recorder is not None
    assert os.environ["RLVR_PROBE_OWNER"] == attachment._recorder.process
    assert set(os.environ) == attached
    rlvr_probe.detach()
    assert set(os.environ) == before


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_fork_while_another_thread_attaches_or_detaches_leaves_a_child_that_can(
    installed: Path,
) -> None:
    rlvr_probe.attach(out=installed, frameworks=())
    held, go = threading.Event(), threading.Event()

    def hold() -> None:
        with attach._lock:
            attach._attaching = True
            held.set()
            go.wait(60)
            attach._attaching = False

    thread = threading.Thread(target=hold)
    thread.start()
    assert held.wait(60)
    pid = os.fork()
    if pid == 0:
        signal.alarm(5)  # ends a child that hangs
        try:
            rlvr_probe.detach()
            attach.arm(Config.from_environ({}, out=installed))
            os._exit(0 if hooks.recorder() is not None else 1)
        finally:
            os._exit(2)
    go.set()
    thread.join(60)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_fork_inside_an_attach_keeps_the_lock_of_its_own_thread(installed: Path) -> None:
    with attach._lock:
        pid = os.fork()
        if pid == 0:
            signal.alarm(5)
            free: list[bool] = []
            thread = threading.Thread(target=lambda: free.append(attach._lock.acquire(False)))
            thread.start()
            thread.join()
            os._exit(0 if free == [False] else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_one_framework_may_be_asked_for_as_a_string(installed: Path) -> None:
    assert rlvr_probe.attach(out=installed, frameworks="toyrl").frameworks.keys() == {"toyrl"}


@pytest.mark.parametrize("arguments", [{"out": "a\0b"}, {"out": b"a\0b"}, {"frameworks": ["a\0b"]}])
def test_what_no_environment_can_hold_is_refused_before_anything_is_set(
    installed: Path, arguments: dict[str, Any]
) -> None:
    environ = dict(os.environ)
    with pytest.raises(exceptions.ConfigError, match=f"argument {next(iter(arguments))}"):
        rlvr_probe.attach(**arguments)
    assert dict(os.environ) == environ
    assert hooks.recorder() is None
    assert rlvr_probe.attach(out=installed, frameworks=()).folder.parent == installed


def test_versions_are_compared_by_their_release_numbers() -> None:
    assert inside("1.16.0", ">=1.16,<1.17")
    assert inside("1.16.0.dev3", "==1.16")
    assert not inside("1.17", ">=1.16,<1.17")
    assert not inside("0.20.0", ">=1.0")
    assert inside("1.10", ">1.9")
