"""What `doctor` finds: of a Python as it is, and of one where something is missing or broken.

A new Python is asked once for each question and environment; later tests get the same answer.
"""

from __future__ import annotations

import importlib
import io
import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from importlib import metadata
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_file_location
from pathlib import Path
from typing import Any

import pytest

from rlvr_probe import cli, filesystem
from rlvr_probe.devices.gpm import METRICS
from rlvr_probe.doctor import Examination, devices, examine, lay_out, startup, storage
from rlvr_probe.doctor.startup import Child
from rlvr_probe.doctor.storage import Storage, examine_storage
from rlvr_probe.probe import election
from rlvr_probe.registry import discover
from rlvr_probe.report.blocks import Line
from tests import toy
from tests.nvml import Nvml

ROOT = Path(__file__).parents[2]
REFERENCE = ROOT / "docs" / "reference" / "doctor-json.md"
SECRET = "canary-5f1c"

Examine = Callable[..., Examination]

ANSWERS: dict[tuple[object, ...], str] = {}
"""What a new Python answered, by the question, the Python, its folder and its environment."""


DEVICES = "[rlvr_probe.devices]\n" + "".join(
    f"{one.name} = {one.value}\n"
    for one in metadata.distribution("rlvr-probe").entry_points
    if one.group == "rlvr_probe.devices"
)
"""Entry points of our own backends of devices."""


class Asked(Child):
    """A new Python, or what one answered to the same question in the same environment."""

    def __init__(self, code: str, environ: Mapping[str, str]) -> None:
        told = {name: value for name, value in environ.items() if name != "PYTEST_CURRENT_TEST"}
        folder = Path("/proc/self/cwd").readlink()
        self._question = (code, sys.executable, folder, frozenset(told.items()))
        if self._question not in ANSWERS:
            super().__init__(code, environ)

    def answer(self, patience_s: float) -> str:
        if self._question not in ANSWERS:
            ANSWERS[self._question] = super().answer(patience_s)
        return ANSWERS[self._question]


@pytest.fixture(autouse=True)
def asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for an answer that is known."""
    monkeypatch.setattr(startup, "Child", Asked)
    monkeypatch.setattr(devices, "Child", Asked)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where the toy framework, which must not be imported, and its integration are installed.

    rlvr-probe has that integration alone there: the names of the others take a second to look up.
    """
    folder = tmp_path / "site"
    toy.install(folder)
    ours = folder / "rlvr_probe-0.dist-info"
    ours.mkdir()
    (ours / "METADATA").write_text(metadata.distribution("rlvr-probe").read_text("METADATA") or "")
    (ours / "entry_points.txt").write_text(
        "[rlvr_probe.integrations]\ntoyrl = rlvr_probe_toyrl:ToyAdapter\n" + DEVICES
    )
    source = folder / "toyrl.py"
    source.write_text("raise SystemExit('imported')\n" + source.read_text())
    monkeypatch.syspath_prepend(str(folder))
    importlib.invalidate_caches()
    yield folder
    assert "toyrl" not in sys.modules
    sys.modules.pop("rlvr_probe_toyrl", None)


@pytest.fixture
def look(tmp_path: Path, site: Path) -> Examine:
    """Examine with the toy framework alone, and more variables; its children see it as well."""

    def look(**variables: str) -> Examination:
        settings = {
            "RLVR_PROBE_OUT": str(tmp_path / "runs"),
            "RLVR_PROBE_FRAMEWORKS": "toyrl",
            # What is said does not depend on how full the disk of the machine is.
            "RLVR_PROBE_BUDGET_B": str(1 << 20),
            **variables,
        }
        return examine({**os.environ, **settings})

    return look


def start_with(folder: Path, code: str) -> dict[str, str]:
    """Variables with which every new Python runs ``code`` first."""
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(code)
    return {"PYTHONPATH": str(folder)}


def doctor(*arguments: str, python: tuple[str, ...] = (), **options: Any) -> tuple[int, str, str]:
    command = [sys.executable, *python, "-m", "rlvr_probe.cli", "doctor", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, **options)
    return done.returncode, done.stdout, done.stderr


# ---------------------------------------------------------------- frameworks


def test_nothing_is_missed_where_everything_is_there(look: Examine) -> None:
    found = look()
    assert found.problems == ()
    assert found.notes == ()
    [one] = [one for one in found.frameworks if one.name == "toyrl"]
    assert (one.state, one.version, one.tested, one.tested_version) == (
        "ready",
        "1.2.3",
        ">=1,<2",
        True,
    )
    assert [(point.target, point.optional, point.problem) for point in one.points] == [
        ("toyrl:Trainer.train", False, None),
        ("toyrl:Trainer.one_step", False, None),
        ("toyrl:Trainer.generate", False, None),
        ("toyrl:Trainer.of_a_later_release", True, None),
    ]
    assert [point.where is not None for point in one.points] == [True, True, True, False]
    assert re.fullmatch(r"toyrl\.py:\d+", str(one.points[0].where))


def test_a_hook_point_that_does_not_resolve_is_a_problem(look: Examine, site: Path) -> None:
    source = site / "toyrl.py"
    source.write_text(source.read_text().replace("def generate", "def sample"))
    found = look()
    [one] = [one for one in found.frameworks if one.name == "toyrl"]
    assert one.state == "incomplete"
    assert [point.problem for point in one.points if point.problem] == [
        "toyrl:Trainer has no generate"
    ]
    assert found.problems == (
        "1 of 4 hook points of toyrl 1.2.3 do not resolve (listed below), and what they record "
        "would be missing; install toyrl>=1,<2, or a newer rlvr-probe",
    )


def test_a_framework_that_only_a_finder_knows_is_looked_up_where_it_lies(
    look: Examine, site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As an editable install of a package has it."""
    package = tmp_path / "checkout" / "toyrl"
    package.mkdir(parents=True)
    (site / "toyrl.py").rename(package / "__init__.py")

    class Finder:
        @staticmethod
        def find_spec(name: str, *_: object) -> ModuleSpec | None:
            if name != "toyrl":
                return None
            places = [str(package)]
            return spec_from_file_location(
                name, package / "__init__.py", submodule_search_locations=places
            )

    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path, Finder])
    importlib.invalidate_caches()
    [one] = [one for one in look().frameworks if one.name == "toyrl"]
    assert (one.state, one.problem) == ("ready", None)
    assert re.fullmatch(r"toyrl/__init__\.py:\d+", str(one.points[0].where))


def test_an_untested_version_is_a_note_if_its_hook_points_resolve(
    look: Examine, site: Path
) -> None:
    (site / "toyrl-1.2.3.dist-info" / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: toyrl\nVersion: 2.0\n"
    )
    found = look()
    assert found.problems == ()
    assert found.notes == (
        "toyrl 2.0 is not among the releases this rlvr-probe is tested with (>=1,<2); a real run "
        "has not been checked there",
    )


def test_a_python_without_a_framework_is_a_problem_unless_none_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = sorted(discover())
    monkeypatch.setattr("rlvr_probe.registry.installed_version", lambda name: None)
    monkeypatch.setattr("rlvr_probe.registry._importable", lambda name: False)
    environ = {**os.environ, "RLVR_PROBE_OUT": str(tmp_path / "runs")}
    [problem] = examine(environ).problems
    named = f"no supported framework ({', '.join(ours)}) is installed in this Python"
    assert problem.startswith(named)
    assert examine({**environ, "RLVR_PROBE_FRAMEWORKS": "none"}).problems == ()


def test_what_is_asked_for_and_not_there_is_a_problem_and_what_is_not_asked_for_is_none(
    look: Examine, site: Path
) -> None:
    for file in (site / "toyrl-1.2.3.dist-info").iterdir():
        file.unlink()
    (site / "toyrl.py").unlink()
    assert look(RLVR_PROBE_FRAMEWORKS="none").problems == ()
    assert look(RLVR_PROBE_FRAMEWORKS="toyrl,unheard").problems == (
        "toyrl is asked for and not installed in this Python",
        "unheard cannot be attached: no integration of this name is installed; installed are: "
        + ", ".join(sorted(one.name for one in look().frameworks)),
    )


@pytest.mark.parametrize(
    ("broken", "problem"),
    [
        ("raise ImportError", "toyrl cannot be attached: its integration rlvr_probe_toyrl:"),
        (
            "def expected(self, version): raise KeyError",
            "the integration of toyrl does not say what it hooks (KeyError)",
        ),
    ],
)
def test_a_broken_integration_is_a_problem(
    look: Examine, site: Path, broken: str, problem: str
) -> None:
    with (site / "rlvr_probe_toyrl.py").open("a") as file:
        indent = "    " if broken.startswith("def") else ""
        file.write(f"\n{indent}{broken}\n")
    [found] = look().problems
    assert found.startswith(problem)


@pytest.mark.parametrize(
    "broken",
    ["import arrow_of_acme", "raise SystemExit", "It = list"],
    ids=["import", "exit", "kind"],
)
def test_an_exporter_that_cannot_be_loaded_is_a_note_and_no_problem(
    look: Examine, site: Path, broken: str
) -> None:
    info = site / "acme_format-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-format\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[rlvr_probe.exporters]\nacme = acme_format:It\n")
    (site / "acme_format.py").write_text(broken)
    found = look()
    assert found.problems == ()
    [note] = [note for note in found.notes if "acme" in note]
    assert note.startswith("exporter acme (acme_format:It of acme-format) cannot be loaded (")
    assert "acme cannot be loaded" in printed(found)


def test_broken_metadata_beside_it_hides_nothing(look: Examine, site: Path) -> None:
    for name in ("a", "zz"):
        folder = site / f"{name}-1.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_bytes(b"\xff\xfe")
        (folder / "entry_points.txt").write_bytes(b"\xff[")
    # The first one on the path counts: of rlvr-probe itself nothing can be read then.
    for file in (site / "rlvr_probe-0.dist-info").iterdir():
        file.unlink()
    found = look()
    assert found.problems == ()
    assert found.installation.dependencies == ()
    assert "unknown" in printed(found)


# ---------------------------------------------------------------- start-up hook


def test_the_start_up_hook_is_proven_in_a_new_python(look: Examine) -> None:
    startup = look().startup
    assert (startup.works, startup.reason) == (True, None)
    assert str(startup.file).endswith("rlvr_probe_boot.pth")


def test_a_hook_where_python_reads_no_pth_file_is_a_problem(tmp_path: Path) -> None:
    # As after `pip install --target`: everything is importable, nothing is started.
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True)
    paths = [str(ROOT / "src"), str(ROOT / "integrations"), *filter(None, sys.path)]
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    python = tmp_path / "venv" / "bin" / "python"
    run = [str(python), "-m", "rlvr_probe.cli", "doctor", "--json", "--out", str(tmp_path)]
    done = subprocess.run(run, capture_output=True, text=True, timeout=120, env=environ)
    assert done.returncode == 1, done.stderr
    found = json.loads(done.stdout)
    assert found["startup"]["works"] is False
    assert found["startup"]["reason"] == (
        "rlvr_probe_boot.pth lies where Python reads no .pth file; install rlvr-probe into "
        "site-packages, not with --target or by PYTHONPATH"
    )
    assert (
        f"child processes would not be recorded: {found['startup']['reason']}"
        in (found["problems"])
    )


def test_a_python_started_without_site_is_a_problem() -> None:
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    code = (
        "import os; from rlvr_probe.doctor.startup import ask_startup;"
        " print(ask_startup(os.environ)(60))"
    )
    run = [sys.executable, "-S", "-c", code]
    done = subprocess.run(run, capture_output=True, text=True, timeout=120, env=environ)
    assert done.stdout.startswith("Startup(works=False, "), done.stderr
    assert "started with -S" in done.stdout


def test_a_probe_that_cannot_be_loaded_is_a_problem(look: Examine, tmp_path: Path) -> None:
    broken = start_with(tmp_path / "broken", "import sys; sys.modules['msgspec'] = None")
    found = look(**broken)
    assert found.startup.works is False
    assert str(found.startup.reason).startswith("the probe cannot be loaded (ModuleNotFoundError")
    assert len(found.problems) == 1


def test_a_python_that_hangs_is_ended_and_said(look: Examine, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    code = f"import os, time\nprint(os.getpid(), file=open({str(pids)!r}, 'a'))\ntime.sleep(600)"
    environ = {**os.environ, **start_with(tmp_path / "hang", code)}
    found = examine({**environ, "RLVR_PROBE_OUT": str(tmp_path)}, patience_s=3)
    assert found.startup.reason == "a new Python did not answer in time"
    assert found.gpu.reason == (
        "devices of host cannot be read (a new Python did not answer in time); devices of nvidia"
        " cannot be read (a new Python did not answer in time)"
    )
    for pid in pids.read_text().split():
        with pytest.raises(ProcessLookupError):
            os.kill(int(pid), 0)


def test_devices_that_hang_hide_no_others(
    look: Examine, site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a driver that is out of order; its backend is asked before ours, by its name."""
    info = site / "acme_devices-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-devices\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[rlvr_probe.devices]\nacme = acme_devices:It\n")
    (site / "acme_devices.py").write_text("import time\ntime.sleep(600)\n")
    (site / "rlvr_probe-0.dist-info" / "entry_points.txt").write_text(DEVICES)
    monkeypatch.setenv("PYTHONPATH", str(site))
    gpu, found = devices.ask_devices(os.environ)(15)
    assert gpu.reason is not None
    assert gpu.reason.startswith(
        "devices of acme cannot be read (a new Python did not answer in time)"
    )
    assert [one.kind for one in found if one.kind == "host"] == ["host"]


def test_a_python_that_dies_or_cannot_be_started_is_said(
    look: Examine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dies = start_with(tmp_path / "dies", "import os; os._exit(3)")
    assert look(**dies).startup.reason == "a new Python ended with status 3"
    monkeypatch.setattr(sys, "executable", str(tmp_path / "gone"))
    reason = look().startup.reason
    assert reason == "a new Python cannot be started (No such file or directory)"
    monkeypatch.setattr(sys, "executable", "")
    assert look().startup.reason == "this Python does not know its own executable"


# ---------------------------------------------------------------- folder of recordings


def test_a_folder_is_tried_and_left_as_it_was(tmp_path: Path) -> None:
    runs = tmp_path / "a" / "runs"
    before = tmp_path.stat().st_mtime_ns
    found = examine_storage(runs, 30)
    assert (found.exists, found.writable, found.reason) == (False, True, None)
    assert found.file_system is not None
    assert found.open_table is True
    assert found.free_b is not None
    assert found.size_b is not None
    assert 0 < found.free_b < found.size_b
    assert list(tmp_path.iterdir()) == []
    assert tmp_path.stat().st_mtime_ns == before
    assert examine_storage(tmp_path, 30).exists is True


def test_where_a_file_must_have_a_name_it_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "O_TMPFILE")
    before = tmp_path.stat().st_mtime_ns
    assert examine_storage(tmp_path, 30).writable is True
    assert list(tmp_path.iterdir()) == []
    assert tmp_path.stat().st_mtime_ns > before


@pytest.mark.parametrize("named", [False, True])
def test_a_disk_that_takes_no_data_is_a_problem(
    named: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import resource

    if named:
        monkeypatch.delattr(os, "O_TMPFILE")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        found = examine_storage(tmp_path, 30)
    finally:
        signal.signal(signal.SIGXFSZ, handler)
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert (found.writable, found.reason) == (
        False,
        "it takes no file (File too large); name another folder, or mount one",
    )
    assert list(tmp_path.iterdir()) == []


def test_a_file_in_the_way_and_a_folder_that_takes_no_files_are_problems(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    found = examine_storage(tmp_path / "file" / "runs", 30)
    assert (found.writable, found.reason) == (False, f"{tmp_path / 'file'} is not a folder")
    found = examine_storage(Path("/proc/runs"), 30)
    assert found.writable is False
    assert str(found.reason).startswith("/proc takes no file (")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_another_user_who_may_not_write_and_has_no_home_is_told(tmp_path: Path, site: Path) -> None:
    # Loaded before: the interpreter itself may lie in a folder that is root's alone.
    script = f"""
import os, sys, json, subprocess, tempfile
from rlvr_probe import cli
from rlvr_probe.doctor import examine
del os.environ["RLVR_PROBE_SIDECAR"]
examine(out={str(tmp_path)!r})
os.chmod({str(tmp_path)!r}, 0o755)
os.setgroups([]); os.setgid(65534); os.setuid(65534)
os.environ.clear()
sys.exit(cli.main(["doctor", "--json", "--out", {str(tmp_path / "runs")!r}]))
"""
    run = [sys.executable, "-c", script]
    environ = {**os.environ, "PYTHONPATH": str(site)}
    done = subprocess.run(run, capture_output=True, text=True, timeout=120, env=environ)
    assert done.returncode == 1, done.stderr
    assert json.loads(done.stdout)["storage"]["reason"].endswith(
        "takes no file (Permission denied); name another folder, or mount one"
    )


def test_a_file_server_that_does_not_answer_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A stub: a file server that is gone cannot be had here.
    answered = threading.Event()
    monkeypatch.setattr(storage, "file_system", lambda _: answered.wait(60) and None)
    found = examine_storage(tmp_path, 0.2)
    answered.set()
    assert found == Storage(str(tmp_path), reason="its file system did not answer within 0.2 s")


def test_a_disk_with_less_room_than_has_to_stay_free_is_a_problem(
    look: Examine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RLVR_PROBE_FREE_B")
    free = look().storage
    assert free is not None
    assert free.size_b is not None
    assert free.floor_b is not None
    assert 0 < free.floor_b <= free.size_b / 10
    assert free.free_b is not None
    for times, what in ((1.5, "turns and tool calls"), (9, "lengths and rewards")):
        found = look(RLVR_PROBE_FREE_B=str(int(free.free_b * times)))
        assert re.search(rf"{what} would not be recorded in \S+: [\d,]+ MiB", found.problems[0])
        assert len(found.problems) == 1
        assert found.notes == ()
    found = look(RLVR_PROBE_FREE_B=str(free.free_b // 2), RLVR_PROBE_BUDGET_B=str(free.free_b))
    assert found.problems == ()
    [note] = found.notes
    assert re.search(r"has room for [\d,]+ MiB beside the [\d,]+ MiB that have to stay", note)
    headline = printed(found).splitlines()[0]
    assert headline.endswith(": OK: everything will be recorded, but room is short for a long run")


@pytest.mark.parametrize("kind", ["nfs4", "lustre", "fuse.sshfs"])
def test_on_a_network_file_system_it_is_said_what_is_missing(
    kind: str, look: Examine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A stub: no network file system can be mounted here, so the list of mounts is another one.
    device = tmp_path.stat().st_dev
    mounts = tmp_path / "mountinfo"
    mounts.write_text(f"1 0 {os.major(device)}:{os.minor(device)} / / rw - {kind} server rw\n")
    monkeypatch.setattr(filesystem, "_MOUNTS", str(mounts))
    found = look()
    assert found.storage is not None
    assert (found.storage.file_system, found.storage.open_table) == (kind, False)
    assert found.problems == ()
    [note] = found.notes
    assert note.startswith(f"{tmp_path / 'runs'} is on {kind}: no open-span table there")


def test_a_mount_is_found_by_its_place_where_devices_do_not_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "with space" / "deeper"
    folder.mkdir(parents=True)
    mounts = tmp_path / "mountinfo"
    place = str(folder.parent).replace(" ", "\\040")
    mounts.write_text(
        f"1 0 0:999990 / / rw - ext4 disk rw\n2 1 0:999991 / {place} rw - btrfs disk rw\n"
        f"3 1 0:999992 / {place}er rw - nfs disk rw\nnonsense\n"
    )
    monkeypatch.setattr(filesystem, "_MOUNTS", str(mounts))
    assert filesystem.file_system(folder) == "btrfs"
    assert filesystem.file_system(tmp_path) == "ext4"
    monkeypatch.setattr(filesystem, "_MOUNTS", str(tmp_path / "gone"))
    assert filesystem.file_system(folder) is None


# ---------------------------------------------------------------- settings, GPU library, versions


def test_settings_in_effect_are_said_and_no_other_variable(look: Examine) -> None:
    found = look(RLVR_PROBE_FLUSH_S="0.5", RLVR_PROBE_FLUSHS=SECRET, TOKEN=SECRET, RLVR_X=SECRET)
    assert found.settings.values["flush_s"] == 0.5
    assert found.settings.variables["RLVR_PROBE_FLUSH_S"] == "0.5"
    assert found.settings.unknown_variables == ("RLVR_PROBE_FLUSHS",)
    assert found.notes == ("RLVR_PROBE_FLUSHS is not a setting; it is ignored",)
    assert SECRET not in json.dumps(found.to_json()) + printed(found)


def test_a_node_where_no_sidecar_would_run_is_a_note(
    look: Examine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(election, "PLACES", ("/nowhere",))
    [note] = look(RLVR_PROBE_SIDECAR="1").notes
    assert note.startswith("no place for the lock of a sidecar in any of /nowhere: ")
    assert look(RLVR_PROBE_SIDECAR="0").notes == ()


def test_a_run_folder_that_is_open_to_everybody_is_a_note(look: Examine, tmp_path: Path) -> None:
    (tmp_path / "runs" / "job").mkdir(parents=True)
    (tmp_path / "runs" / "job").chmod(0o777)
    found = look(RLVR_PROBE_RUN_ID="job")
    assert found.problems == ()
    assert any("open to everyone" in note and "job+1" in note for note in found.notes)
    assert found.storage is not None
    assert found.storage.path.endswith("/runs/job+1")


def test_a_setting_that_cannot_be_used_is_a_problem(look: Examine) -> None:
    found = look(RLVR_PROBE_QUEUE_ROWS="many")
    assert found.problems == (
        "invalid settings: RLVR_PROBE_QUEUE_ROWS is 'many': expected a whole number from 1 "
        "to 10000000",
    )
    assert found.storage is None


def test_switched_off_is_a_problem_and_the_rest_is_looked_at_all_the_same(look: Examine) -> None:
    found = look(RLVR_PROBE_DISABLED="1")
    assert found.problems == ("RLVR_PROBE_DISABLED is set: nothing is recorded; unset it",)
    assert found.storage is not None
    assert found.startup.works is True


def test_the_devices_are_asked_in_a_process_of_its_own(
    look: Examine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "pynvml", raising=False)  # torch may have imported it
    rows = (
        "0 sys count 3",
        "0 2 mig 1",
        *(f"0 {i} gpm.{n} 1" for i in (0, 1) for n in METRICS.values()),
    )
    nvml = Nvml(tmp_path, *rows, virtual=False)
    found = look(**nvml.environ())
    assert found.gpu.driver == "999.0-scripted"
    assert found.gpu.devices == ("Scripted H200",) * 3
    assert found.gpu.reason is None
    gpus = [one for one in found.devices if one.kind == "gpu"]
    assert [one.part for one in gpus] == [False, False, False, True]
    assert gpus[0].memory_limit_b == 150_000_000_000
    assert gpus[0].absent["nvlink_tx_b"] == "not supported (3)"
    assert "sm_active" not in gpus[0].absent
    assert gpus[2].absent["sm_active"] == "not supported (3)"
    assert gpus[3].absent["energy_j"] == "reported for the whole GPU only"
    text = " ".join(printed(found).split())
    assert "driver 999.0-scripted, 3 x Scripted H200" in text
    assert "2 x Scripted H200: without power_w, nvlink_tx_b, nvlink_rx_b" in text
    assert "pynvml" not in sys.modules


def test_a_gpu_library_that_crashes_or_fails_is_no_problem(look: Examine, tmp_path: Path) -> None:
    stub = tmp_path / "stub" / "pynvml.py"
    stub.parent.mkdir()
    stub.write_text("import os; os.kill(os.getpid(), 11)")
    crashed = look(PYTHONPATH=str(stub.parent))
    assert crashed.gpu.reason == (
        "devices of nvidia cannot be read (a new Python ended with status -11)"
    )
    assert ([one.kind for one in crashed.devices], crashed.problems) == (["host"], ())
    # A stub: there may be a driver here.
    stub.write_text(
        "NVML_ERROR_LIBRARY_NOT_FOUND = 12\n"
        "class NVMLError(Exception): value = 12\n"
        "def nvmlInit(): raise NVMLError\n"
    )
    found = look(PYTHONPATH=str(stub.parent))
    assert (found.gpu.reason, found.problems) == ("no NVIDIA driver here", ())
    assert [one.kind for one in found.devices] == ["host"]
    assert re.search(r"counters +the host: ", printed(found))


def test_a_backend_that_cannot_be_loaded_is_said(
    look: Examine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "plugin" / "acme-1.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: acme\nVersion: 1\n")
    (folder / "entry_points.txt").write_text("[rlvr_probe.devices]\nacme = nowhere_at_all:It\n")
    monkeypatch.syspath_prepend(str(folder.parent))
    found = look(PYTHONPATH=str(folder.parent))
    assert "devices of acme cannot be read (ModuleNotFoundError)" in str(found.gpu.reason)


def test_a_dependency_that_is_too_old_or_missing_is_a_problem(
    look: Examine, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = metadata.requires("rlvr-probe") or []
    extra = ["wrapt>=999", "no-such-thing>=1", "rich>=999; extra == 'cli'"]
    monkeypatch.setattr(metadata, "requires", lambda _: [*real, *extra])
    found = look()
    version = metadata.version("wrapt")
    assert found.problems == (
        f"wrapt {version} is installed, >=999 is needed; install rlvr-probe again",
        "no-such-thing (none) is installed, >=1 is needed; install rlvr-probe again",
    )
    names = {(one.name, one.met) for one in found.installation.dependencies}
    assert {("msgspec", True), ("nvidia-ml-py", True), ("rich", False)} <= names


# ---------------------------------------------------------------- what is said


def printed(found: Examination, **options: Any) -> str:
    return "\n".join(line.text for line in lay_out(found, **options))


def test_the_report_says_the_verdict_first_and_marks_what_is_wrong(
    look: Examine, site: Path
) -> None:
    source = site / "toyrl.py"
    source.write_text(source.read_text().replace("def generate", "def sample"))
    lines = lay_out(look(RLVR_PROBE_FLUSHS="1"))
    version = metadata.version("rlvr-probe")
    assert lines[0] == Line(
        f"rlvr-probe {version}: INCOMPLETE: something will not be recorded", "title"
    )
    assert lines[1].style == "alarm"
    assert lines[1].text.startswith("  ✗ 1 of 4 hook points of toyrl 1.2.3 do not resolve")
    text = "\n".join(line.text for line in lines)
    assert "\n  ! RLVR_PROBE_FLUSHS is not a setting" in text
    assert "\n  ✗ toyrl 1.2.3  3 of 4 hook points resolve; in the tested >=1,<2" in text
    assert "\nHook points of toyrl 1.2.3\n  ✗ toyrl:Trainer has no generate\n" in text
    assert "\n  · toyrl:Trainer.of_a_later_release: not in this release, optional\n" in text
    assert "\n  ✓ toyrl:Trainer: train, one_step\n" in text + "\n"


def test_the_report_keeps_to_its_width_and_to_ascii(look: Examine) -> None:
    found = look()
    path = found.startup.file
    for width in (60, 100):
        lines = printed(found, width=width, marks=False).splitlines()
        assert printed(found, marks=False).isascii()
        long = [line for line in lines if len(line) > width]
        assert [line for line in long if max(map(len, line.split())) < width - 24] == []
    assert str(path) in printed(found, width=60), "a path is not broken"


def test_json_is_as_documented(look: Examine) -> None:
    found = json.loads(json.dumps(look().to_json()))
    assert found["schema_version"] == 1
    assert found["complete"] is True
    text = REFERENCE.read_text("utf-8")

    def keys(value: object) -> Iterator[str]:
        if isinstance(value, dict):
            for key, inner in value.items():
                yield key
                yield from keys(inner)
        elif isinstance(value, list):
            for inner in value:
                yield from keys(inner)

    found["settings"]["values"] = found["settings"]["variables"] = {}
    assert [key for key in dict.fromkeys(keys(found)) if f"`{key}`" not in text] == []


# ---------------------------------------------------------------- the command


def test_the_command_exits_with_1_if_something_would_be_missed(
    tmp_path: Path,
    site: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("RLVR_PROBE_FRAMEWORKS", "none")
    assert cli.main(["doctor", "--out", str(tmp_path / "runs")]) == 0
    assert "OK: everything will be recorded" in capsys.readouterr().out
    (tmp_path / "runs").touch()
    assert cli.main(["doctor", "--out", str(tmp_path / "runs"), "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["complete"] is False


def test_an_armed_shell_is_examined_without_a_recording(tmp_path: Path, site: Path) -> None:
    environ = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(site),
        "HOME": str(tmp_path),
        "RLVR_PROBE": "1",
        "RLVR_PROBE_FRAMEWORKS": "toyrl",
        "RLVR_PROBE_RUN_ID": "mine",
        "RLVR_PROBE_FREE_B": "0",
        "TOKEN": SECRET,
    }
    for arguments in ((), ("--json",)):
        code, out, err = doctor(*arguments, env=environ, cwd=tmp_path)
        assert (code, err) == (0, "")
        assert str(tmp_path) not in out
        assert "~/rlvr-probe-runs/mine" in out
        assert SECRET not in out
    assert [path.name for path in tmp_path.iterdir()] == ["site"]


def test_it_works_where_the_terminal_knows_ascii_only(
    tmp_path: Path, site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RLVR_PROBE_FRAMEWORKS", "none")
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO(), encoding="ascii"))
    assert cli.main(["doctor", "--out", str(tmp_path / "runs")]) == 0
    sys.stdout.seek(0)
    out = sys.stdout.read()
    assert "  ok start-up hook" in out
    assert "?" not in out


def test_it_works_in_a_folder_that_is_gone(
    tmp_path: Path, site: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert cli.main(["doctor"]) == 1
    out, err = capsys.readouterr()
    assert "the working directory is gone" in out
    assert err == ""
