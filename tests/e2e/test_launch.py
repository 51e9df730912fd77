"""``rlvr-probe run`` in real processes: status, streams, terminal, signals, reach."""

from __future__ import annotations

import errno
import os
import pty
import re
import resource
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import today
from tests.surroundings import ROOMY

LAUNCHER = str(Path(sys.executable).with_name("rlvr-probe"))
PYTHON = sys.executable

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="signals as Linux delivers them")

# Counts what it gets, says when it is ready, and prints the counts when a line or EOF arrives.
COUNTER = """
import signal, sys
counts = {}
def count(number, frame):
    name = signal.Signals(number).name
    counts[name] = counts.get(name, 0) + 1
for name in ("INT", "TERM", "HUP", "QUIT", "USR1", "USR2", "CONT", "WINCH"):
    signal.signal(getattr(signal, "SIG" + name), count)
print("ready", flush=True)
sys.stdin.readline()
print("counts", counts, flush=True)
"""
SIGNALS = ["INT", "TERM", "HUP", "QUIT", "USR1", "USR2", "CONT", "WINCH"]


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """An environment without a home and without anything of this test run's own."""
    return {
        "PATH": os.defpath,
        "RLVR_PROBE_OUT": str(tmp_path / "out"),
        "RLVR_PROBE_SIDECAR": "0",
        **ROOMY,
    }


def run(
    *command: str, environ: dict[str, str], options: tuple[str, ...] = (), **kwargs: object
) -> subprocess.CompletedProcess[str]:
    arguments = [LAUNCHER, "run", *options, "--", *command]
    return subprocess.run(  # type: ignore[call-overload]
        arguments, env=environ, capture_output=True, text=True, timeout=60, check=False, **kwargs
    )


def start(*command: str, environ: dict[str, str], **kwargs: object) -> subprocess.Popen[str]:
    pipe = subprocess.PIPE
    return subprocess.Popen(  # type: ignore[call-overload]
        [LAUNCHER, "run", "--", *command],
        env=environ,
        stdin=pipe,
        stdout=pipe,
        stderr=pipe,
        text=True,
        **kwargs,
    )


def counts_of_a_sigterm_to(launcher_code: str, environ: dict[str, str]) -> tuple[str, int]:
    """What reached the command of a launcher that gets one, and how the launcher exits."""
    code = COUNTER + "sys.exit(5)\n"
    with subprocess.Popen(
        [PYTHON, "-c", launcher_code, PYTHON, "-c", code],
        env=environ,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as launcher:
        ready(launcher)
        os.kill(launcher.pid, signal.SIGTERM)
        time.sleep(0.3)
        printed, _ = launcher.communicate("\n", timeout=60)
    return printed, launcher.returncode


def ready(process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"


def children(pid: int) -> dict[int, str]:
    """Pid and name of each child of ``pid``."""
    pids = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return {int(child): Path(f"/proc/{child}/comm").read_text().strip() for child in pids}


def child_of(process: subprocess.Popen[str]) -> int:
    """The command, which is not the launcher's witness."""

    def others() -> list[int]:
        return [pid for pid, name in children(process.pid).items() if name != "signal-witness"]

    until(lambda: len(others()) == 1, "the witness has taken its name")
    return others()[0]


def state(pid: int) -> str:
    """One letter: R running, S sleeping, T stopped, Z ended."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def until(condition: object, what: str) -> None:
    deadline = time.monotonic() + 60
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


# ------------------------------------------------------------------- status and message


@pytest.mark.parametrize("status", today.some([0, 1, 2, 77, 255], 2))
def test_the_exit_status_is_that_of_the_command(environ: dict[str, str], status: int) -> None:
    assert run("sh", "-c", f"exit {status}", environ=environ).returncode == status


@pytest.mark.parametrize(
    "name", today.some(["KILL", "TERM", "INT", "SEGV", "HUP", "PIPE", "XFSZ"], 3)
)
def test_death_by_a_signal_is_128_more(environ: dict[str, str], name: str) -> None:
    ended = run("sh", "-c", f"ulimit -c 0; kill -{name} $$", environ=environ)
    assert ended.returncode == 128 + getattr(signal, f"SIG{name}")


def test_a_command_that_does_not_exist_is_127(environ: dict[str, str]) -> None:
    ended = run("no-such-command", environ=environ)
    assert (ended.returncode, ended.stdout) == (127, "")
    assert ended.stderr == "rlvr-probe: no-such-command: command not found\n"


def test_a_command_that_cannot_be_executed_is_126(environ: dict[str, str], tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_text("not a program")
    for command in (text, tmp_path):
        ended = run(str(command), environ=environ)
        assert ended.returncode == 126
        assert ended.stderr == f"rlvr-probe: {command}: Permission denied\n"


@pytest.mark.parametrize(
    "arguments", today.some([[], ["--"], ["--out", "x"], ["--out", "x", "--"]], 2)
)
def test_a_missing_command_is_wrong_usage(environ: dict[str, str], arguments: list[str]) -> None:
    ended = subprocess.run(
        [LAUNCHER, "run", *arguments], env=environ, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 2
    assert ended.stderr.startswith("usage: rlvr-probe run")


@pytest.mark.parametrize(
    ("options", "variables"),
    today.some(
        [
            (("--run-id", "a/b"), {}),
            (("--out", ""), {}),
            ((), {"RLVR_PROBE_FLUSH_S": "soon"}),
            (("--frameworks", "trl,tlr"), {}),
            ((), {"RLVR_PROBE_FRAMEWORKS": "tlr"}),
        ],
        2,
    ),
)
def test_an_unusable_setting_is_said_before_the_command_starts(
    environ: dict[str, str], options: tuple[str, ...], variables: dict[str, str]
) -> None:
    ended = run("echo", "started", environ=environ | variables, options=options)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert len(ended.stderr.splitlines()) == 1


def test_a_framework_that_nobody_knows_is_refused_with_those_that_are_known(
    environ: dict[str, str],
) -> None:
    ended = run("echo", "started", environ=environ, options=("--frameworks", "tlr"))
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr == (
        "rlvr-probe run: error: 'tlr' cannot be recorded: no integration of this name is"
        " installed; installed are: openrlhf, ray, trl, verl, vllm\n"
    )


def test_arguments_reach_the_command_as_they_are(environ: dict[str, str]) -> None:
    arguments = ["--out", "--", "", "a b", "-h", "--help", "*", "ü"]
    code = "import sys; print(sys.argv[1:])"
    ended = run(PYTHON, "-c", code, *arguments, environ=environ)
    assert ended.stdout == f"{arguments}\n"


def test_a_script_without_an_interpreter_line_runs_as_in_a_shell(
    environ: dict[str, str], tmp_path: Path
) -> None:
    script = tmp_path / "script"
    script.write_text("echo from $1; exit 3\n")
    script.chmod(0o755)
    ended = run(str(script), "here", environ=environ)
    assert (ended.returncode, ended.stdout) == (3, "from here\n")


def test_nothing_recorded_is_one_line_that_says_why(environ: dict[str, str]) -> None:
    ended = run("echo", "output", environ=environ)
    assert ended.stdout == "output\n"
    [line] = ended.stderr.splitlines()
    assert line.startswith("rlvr-probe: nothing was recorded: no Python process of the command")


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({}, True),
        *today.some(
            [
                ({"RANK": "1"}, False),
                ({"RLVR_PROBE_LIVE": "0"}, False),
                ({"RLVR_PROBE_SIDECAR": "0"}, False),
                ({"OTEL_SDK_DISABLED": "true"}, False),
                ({"OTEL_EXPORTER_OTLP_ENDPOINT": ""}, False),
                ({"RLVR_PROBE_DISABLED": "1"}, False),
            ],
            2,
        ),
    ],
)
def test_that_a_run_is_sent_is_said_before_the_command_and_how_to_keep_it(
    more: dict[str, str], said: bool, environ: dict[str, str]
) -> None:
    asks = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://me:Canary-secret-8Gh@127.0.0.1:9"}
    ended = run(
        "sh", "-c", "echo mine >&2", environ=environ | {"RLVR_PROBE_SIDECAR": "1"} | asks | more
    )
    first, *_ = ended.stderr.splitlines()
    assert first.startswith("rlvr-probe: each step is sent to otlp when it is over") is said
    assert ("RLVR_PROBE_LIVE=0" in ended.stderr) is said
    assert "Canary" not in ended.stderr


@pytest.mark.parametrize("rank", today.some([{"RANK": "1"}, {"RANK": "0"}, {}], 1))
def test_one_launcher_of_a_job_speaks(environ: dict[str, str], rank: dict[str, str]) -> None:
    slurm = {"SLURM_JOB_ID": "1", "SLURM_STEP_ID": "0"}
    lines = run("true", environ=environ | rank).stderr.splitlines()
    assert len(lines) == (0 if rank.get("RANK") == "1" else 1)
    as_task = [run("true", environ=environ | slurm | {"SLURM_PROCID": task}) for task in "01"]
    assert [len(ended.stderr.splitlines()) for ended in as_task] == [1, 0]


def test_disabled_leaves_the_environment_alone_and_says_so(environ: dict[str, str]) -> None:
    variables = {"RLVR_PROBE_DISABLED": "1", "RLVR_PROBE_FLUSH_S": "soon"}
    ended = run("env", environ=environ | variables)
    found = {line for line in ended.stdout.splitlines() if line.startswith("RLVR_PROBE")}
    assert found == {f"{name}={value}" for name, value in (environ | variables).items()} - {
        f"PATH={os.defpath}"
    }
    assert ended.stderr == "rlvr-probe: nothing was recorded: RLVR_PROBE_DISABLED is set\n"


# --------------------------------------------------------------------- environment, folders


def variables(text: str) -> dict[str, str]:
    pairs = (line.partition("=") for line in text.splitlines())
    return {name: value for name, _, value in pairs if name.startswith("RLVR_PROBE")}


def test_every_child_gets_the_settings_and_one_run_id(
    environ: dict[str, str], tmp_path: Path
) -> None:
    del environ["RLVR_PROBE_OUT"]
    environ["RLVR_PROBE_FLUSH_S"] = "0.25"
    options = ("--out", "here", "--frameworks", "trl,verl")
    ended = run("sh", "-c", "env; cd /; env", environ=environ, options=options, cwd=tmp_path)
    one, two = ended.stdout.count("RLVR_PROBE=1\n"), len(set(re.findall("RUN_ID=.*", ended.stdout)))
    assert (one, two) == (2, 1)
    inherited = variables(ended.stdout)
    assert inherited["RLVR_PROBE_OUT"] == str(tmp_path / "here")
    assert inherited["RLVR_PROBE_FRAMEWORKS"] == "trl,verl"
    assert inherited["RLVR_PROBE_FLUSH_S"] == "0.25"
    assert not (tmp_path / "here").exists()


def test_an_argument_beats_a_variable(environ: dict[str, str], tmp_path: Path) -> None:
    environ |= {"RLVR_PROBE_RUN_ID": "theirs", "RLVR_PROBE_FRAMEWORKS": "verl"}
    assert variables(run("env", environ=environ).stdout)["RLVR_PROBE_RUN_ID"] == "theirs"
    options = ("--run-id", "mine", "--frameworks", "trl", "--out", str(tmp_path / "mine"))
    inherited = variables(run("env", environ=environ, options=options).stdout)
    assert inherited["RLVR_PROBE_RUN_ID"] == "mine"
    assert inherited["RLVR_PROBE_FRAMEWORKS"] == "trl"
    assert inherited["RLVR_PROBE_OUT"] == str(tmp_path / "mine")


def test_two_launchers_at_once_have_two_run_ids(environ: dict[str, str]) -> None:
    launchers = [start("env", environ=environ) for _ in range(4)]
    found = {variables(each.communicate(timeout=60)[0])["RLVR_PROBE_RUN_ID"] for each in launchers}
    assert len(found) == 4


def test_where_no_folder_can_be_made_the_command_runs(environ: dict[str, str]) -> None:
    del environ["RLVR_PROBE_OUT"]
    # A working directory in which even root makes no folder.
    ended = run("sh", "-c", "echo runs; exit 5", environ=environ, cwd="/proc")
    assert (ended.returncode, ended.stdout) == (5, "runs\n")
    assert len(ended.stderr.splitlines()) == 1


@pytest.mark.parametrize("out", ["closed", "closed/in/it"])
def test_where_nobody_may_look_the_command_runs(
    environ: dict[str, str], tmp_path: Path, out: str
) -> None:
    (tmp_path / "closed").mkdir(mode=0o700)
    if os.geteuid() == 0:
        os.chown(tmp_path / "closed", 65534, 65534)
        command = ["setpriv", "--bounding-set=-all", LAUNCHER]  # root may look everywhere
    else:
        (tmp_path / "closed").chmod(0)
        command = [LAUNCHER]
    script = [*command, "run", "--out", str(tmp_path / out), "--", "sh", "-c", "echo runs; exit 5"]
    ended = subprocess.run(script, env=environ, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (5, "runs\n")
    [said] = ended.stderr.splitlines()
    assert said.startswith("rlvr-probe: cannot write to ")
    assert said.endswith(": the command runs unrecorded")


def test_a_read_only_folder_is_said_once_and_before_the_command(
    environ: dict[str, str], tmp_path: Path
) -> None:
    del environ["RLVR_PROBE_OUT"]
    mount = f"mount -t tmpfs -o ro none {tmp_path} && cd {tmp_path}"
    namespace = ["unshare", "--mount", "sh", "-c"]
    if subprocess.run([*namespace, mount], capture_output=True, check=False).returncode:
        pytest.skip("no right to mount here")
    script = f"{mount} && exec {LAUNCHER} run -- sh -c 'echo runs >&2; exit 5'"
    ended = subprocess.run(
        [*namespace, script], env=environ, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 5
    said, ran = ended.stderr.splitlines()
    assert re.fullmatch(
        "rlvr-probe: cannot write to rlvr-probe-runs/[0-9a-f-]+: the command runs unrecorded", said
    )
    assert ran == "runs"


def test_without_a_home_nothing_changes(environ: dict[str, str]) -> None:
    assert "HOME" not in environ
    ended = run("sh", "-c", "echo ${HOME-none}", environ=environ)
    assert (ended.returncode, ended.stdout) == (0, "none\n")


# ------------------------------------------------------------------------------- streams


def test_a_megabyte_passes_through_stdin_and_stdout_unchanged(environ: dict[str, str]) -> None:
    sent = os.urandom(1 << 20)
    ended = subprocess.run(
        [LAUNCHER, "run", "--", "cat"], env=environ, input=sent, capture_output=True, check=True
    )
    assert ended.stdout == sent


def test_a_reader_that_leaves_early_ends_the_command(environ: dict[str, str]) -> None:
    # Python ignores SIGPIPE; the command must not inherit that.
    script = f"{LAUNCHER} run -- sh -c 'yes; echo $? >&2' | head -n 1"
    ended = subprocess.run(
        ["sh", "-c", script], env=environ, capture_output=True, text=True, timeout=60, check=True
    )
    assert ended.stdout == "y\n"
    assert ended.stderr.splitlines()[0] == str(128 + signal.SIGPIPE)


@pytest.mark.parametrize("closed", today.some(["2>&-", ">&-", "<&-", "<&- >&- 2>&-"], 2))
def test_closed_streams_stay_closed_and_change_no_status(
    environ: dict[str, str], closed: str
) -> None:
    command = "sh -c 'ls -l /proc/self/fd >&9; exit 6'"
    script = f"{LAUNCHER} run -- {command} 9>&1 {closed}"
    ended = subprocess.run(
        ["sh", "-c", script], env=environ, capture_output=True, text=True, timeout=60, check=False
    )
    assert ended.returncode == 6
    assert "socket:" not in ended.stdout
    assert len(ended.stderr.splitlines()) == ("2" not in closed)


def test_open_files_are_inherited_and_none_of_ours_is_added(environ: dict[str, str]) -> None:
    code = "import os; print(sorted(map(int, os.listdir('/proc/self/fd'))))"
    read, write = os.pipe()
    direct, launched = (
        subprocess.run(
            [*prefix, PYTHON, "-c", code],
            env=environ,
            capture_output=True,
            text=True,
            check=True,
            pass_fds=(write,),
        ).stdout
        for prefix in ([], [LAUNCHER, "run", "--"])
    )
    os.close(read)
    os.close(write)
    assert launched == direct


# ------------------------------------------------------------------------------- signals


@pytest.mark.parametrize("name", today.some(SIGNALS, 3))
@pytest.mark.parametrize("whole_group", [False, True], ids=["process", "group"])
def test_a_signal_arrives_once(environ: dict[str, str], name: str, whole_group: bool) -> None:
    with start(PYTHON, "-c", COUNTER, environ=environ, start_new_session=True) as launcher:
        ready(launcher)
        until(lambda: len(children(launcher.pid)) == 2, "the witness is there")
        (os.killpg if whole_group else os.kill)(launcher.pid, getattr(signal, f"SIG{name}"))
        time.sleep(0.3)
        output, _ = launcher.communicate("\n", timeout=60)
        assert (output, launcher.returncode) == (f"counts {{'SIG{name}': 1}}\n", 0)


def test_a_signal_to_every_process_of_the_job_arrives_once(environ: dict[str, str]) -> None:
    # What Slurm and systemd do.
    with start(PYTHON, "-c", COUNTER, environ=environ, start_new_session=True) as launcher:
        ready(launcher)
        until(lambda: len(children(launcher.pid)) == 2, "the witness is there")
        for pid in (launcher.pid, *children(launcher.pid)):
            os.kill(pid, signal.SIGUSR1)
        time.sleep(0.3)
        assert launcher.communicate("\n", timeout=60)[0] == "counts {'SIGUSR1': 1}\n"


def test_the_same_signal_again_arrives_again(environ: dict[str, str]) -> None:
    with start(PYTHON, "-c", COUNTER, environ=environ, start_new_session=True) as launcher:
        ready(launcher)
        until(lambda: len(children(launcher.pid)) == 2, "the witness is there")
        for send in (os.killpg, os.kill, os.killpg, os.kill):
            send(launcher.pid, signal.SIGTERM)
            time.sleep(0.3)
        assert launcher.communicate("\n", timeout=60)[0] == "counts {'SIGTERM': 4}\n"


def test_a_signal_the_command_sends_to_its_group_does_not_come_back(
    environ: dict[str, str],
) -> None:
    code = COUNTER + "import os, time\nos.kill(0, signal.SIGUSR1); time.sleep(0.3); print(counts)\n"
    with start(PYTHON, "-c", code, environ=environ, start_new_session=True) as launcher:
        output, _ = launcher.communicate("\n", timeout=60)
        assert output.splitlines()[-1] == "{'SIGUSR1': 1}"


def test_a_command_that_left_our_group_gets_what_is_sent_to_ours(environ: dict[str, str]) -> None:
    code = "import os; os.setpgid(0, 0)\n" + COUNTER
    with start(PYTHON, "-c", code, environ=environ, start_new_session=True) as launcher:
        ready(launcher)
        os.killpg(launcher.pid, signal.SIGTERM)
        time.sleep(0.3)
        assert launcher.communicate("\n", timeout=60)[0] == "counts {'SIGTERM': 1}\n"


def test_without_a_witness_a_signal_still_arrives(environ: dict[str, str]) -> None:
    with start(PYTHON, "-c", COUNTER, environ=environ, start_new_session=True) as launcher:
        ready(launcher)
        until(lambda: len(children(launcher.pid)) == 2, "the witness is there")
        [witness] = set(children(launcher.pid)) - {child_of(launcher)}
        os.kill(witness, signal.SIGKILL)
        until(lambda: len(children(launcher.pid)) == 1, "the witness is reaped")
        os.kill(launcher.pid, signal.SIGTERM)
        time.sleep(0.3)
        assert launcher.communicate("\n", timeout=60)[0] == "counts {'SIGTERM': 1}\n"


@pytest.mark.parametrize(
    ("name", "error"), [("pipe2", errno.EMFILE), ("pipe", errno.EMFILE), ("fork", errno.EAGAIN)]
)
def test_where_no_witness_can_be_made_the_command_runs_and_signals_arrive(
    environ: dict[str, str], name: str, error: int
) -> None:
    refuse = f"""
import os, sys
def refuse(*_):
    raise OSError({error}, "no more")
os.{name} = refuse
before = len(os.listdir("/proc/self/fd"))
from rlvr_probe.launch import launch
status = launch(sys.argv[1:])
assert len(os.listdir("/proc/self/fd")) == before
sys.exit(status)
"""
    assert counts_of_a_sigterm_to(refuse, environ) == ("counts {'SIGTERM': 1}\n", 5)


def test_a_command_of_another_user_that_may_not_be_signalled_is_waited_for(
    environ: dict[str, str],
) -> None:
    # A setuid command, as far as the launcher can tell.
    refuse = """
import os, sys
from rlvr_probe.launch import launch
kill = os.kill
def refuse(pid, number):
    if number == 15:
        raise PermissionError(1, "Operation not permitted")
    kill(pid, number)
os.kill = refuse
sys.exit(launch(sys.argv[1:]))
"""
    assert counts_of_a_sigterm_to(refuse, environ) == ("counts {}\n", 5)


def test_a_thousand_open_files_do_not_end_the_launcher(environ: dict[str, str]) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 1200:
        pytest.skip("so many files may not be opened here")
    # select() knows descriptors below 1024 only.
    many = f"""
import os, resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (1200, {hard}))
for _ in range(1100):
    os.open(os.devnull, os.O_RDONLY)
from rlvr_probe.launch import launch
sys.exit(launch(sys.argv[1:]))
"""
    with subprocess.Popen(
        [PYTHON, "-c", many, PYTHON, "-c", COUNTER],
        env=environ,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as launcher:
        ready(launcher)
        until(lambda: "signal-witness" in children(launcher.pid).values(), "the witness is there")
        time.sleep(0.2)
        for send in (os.kill, os.killpg):
            send(launcher.pid, signal.SIGTERM)
            time.sleep(0.3)
        assert launcher.communicate("\n", timeout=60)[0] == "counts {'SIGTERM': 2}\n"
    assert launcher.returncode == 0


def test_ending_the_launcher_by_its_name_ends_the_command(environ: dict[str, str]) -> None:
    with start("sleep", "60", environ=environ, start_new_session=True) as launcher:
        until(lambda: len(children(launcher.pid)) == 2, "the witness is there")
        if shutil.which("pgrep") is None:
            pytest.skip("no pgrep here")

        def named() -> list[str]:
            """As pkill would: everything in this session that carries the launcher's name."""
            search = ["pgrep", "-s", str(launcher.pid), "-f", "rlvr-probe"]
            return subprocess.run(search, capture_output=True, text=True, check=True).stdout.split()

        # A child has it too from its fork until it starts its own program.
        until(lambda: named() == [str(launcher.pid)], "the launcher alone has its name")
        launcher.terminate()
        assert launcher.wait(timeout=60) == 128 + signal.SIGTERM


def test_ignored_signals_stay_ignored(environ: dict[str, str]) -> None:
    code = "import signal; print(*(repr(signal.getsignal(n)) for n in (1, 2, 13, 15)))"
    script = "trap '' HUP INT; exec \"$@\""
    ended = subprocess.run(
        ["sh", "-c", script, "sh", LAUNCHER, "run", "--", PYTHON, "-c", code],
        env=environ,
        capture_output=True,
        text=True,
        check=True,
    )
    # Python itself ignores SIGPIPE in every process of its own.
    assert re.findall("SIG_[A-Z]+", ended.stdout) == ["SIG_IGN"] * 3 + ["SIG_DFL"]


def test_the_command_starts_with_the_signal_mask_we_were_given(environ: dict[str, str]) -> None:
    show = ("grep", "-E", "^Sig(Blk|Ign)", "/proc/self/status")
    direct = subprocess.run(show, capture_output=True, text=True, check=True).stdout

    # Signals from 32 on are glibc's own; its posix_spawn leaves two of them ignored.
    def plain(text: str) -> list[int]:
        return [int(mask, 16) & 0x7FFFFFFF for mask in text.split()[1::2]]

    assert plain(run(*show, environ=environ).stdout) == plain(direct)


def test_a_command_that_ignores_term_runs_on_and_a_second_signal_works(
    environ: dict[str, str],
) -> None:
    code = "import signal, sys; signal.signal(15, signal.SIG_IGN); print('ready', flush=True)"
    command = (PYTHON, "-c", code + "; signal.pause()")
    with start(*command, environ=environ, start_new_session=True) as launcher:
        ready(launcher)
        launcher.terminate()
        with pytest.raises(subprocess.TimeoutExpired):
            launcher.wait(timeout=0.5)
        launcher.send_signal(signal.SIGUSR1)
        assert launcher.wait(timeout=60) == 128 + signal.SIGUSR1


def test_a_command_outlives_a_killed_launcher_and_the_witness_does_not(
    environ: dict[str, str],
) -> None:
    with start(PYTHON, "-c", COUNTER, environ=environ, start_new_session=True) as launcher:
        ready(launcher)
        until(lambda: len(children(launcher.pid)) == 2, "the witness is there")
        child = child_of(launcher)
        [witness] = set(children(launcher.pid)) - {child}
        time.sleep(0.2)
        launcher.kill()
        launcher.wait(timeout=60)
        until(lambda: not alive(witness), "the witness ends with the launcher")
        assert alive(child)
        assert launcher.communicate("\n", timeout=60)[0] == "counts {}\n"


def alive(pid: int) -> bool:
    try:
        return state(pid) != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_nothing_of_ours_is_left(environ: dict[str, str]) -> None:
    with start("true", environ=environ, start_new_session=True) as launcher:
        launcher.communicate(timeout=60)
        with pytest.raises(ProcessLookupError):
            os.killpg(launcher.pid, 0)


# ------------------------------------------------------------------------------ terminal


class Terminal:
    """A terminal with a process on it that has the session and the foreground."""

    def __init__(self, *command: str, environ: dict[str, str]) -> None:
        self.text = ""
        self.pid, self._master = pty.fork()
        if self.pid == 0:
            os.execve(command[0], list(command), environ)

    def type(self, text: str) -> None:
        os.write(self._master, text.encode())

    def expect(self, text: str) -> str:
        """Read until ``text`` arrives and return everything up to it."""
        deadline = time.monotonic() + 20
        while text not in self.text:
            assert time.monotonic() < deadline, f"no {text!r} in {self.text!r}"
            if select.select([self._master], [], [], 0.5)[0]:
                try:
                    self.text += os.read(self._master, 4096).decode()
                except OSError:  # the other side is closed
                    deadline = 0
        before, _, self.text = self.text.partition(text)
        return before

    def close(self) -> None:
        os.close(self._master)
        try:
            os.killpg(self.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        os.waitpid(self.pid, 0)


@pytest.fixture
def terminals() -> Iterator[list[Terminal]]:
    opened: list[Terminal] = []
    yield opened
    for terminal in opened:
        terminal.close()


def test_the_terminal_is_the_command_s_own(
    environ: dict[str, str], terminals: list[Terminal]
) -> None:
    code = (
        "import os, sys; print([os.isatty(n) for n in (0, 1, 2)], "
        "os.tcgetpgrp(0) == os.getpgrp(), input('name? '))"
    )
    terminal = Terminal(LAUNCHER, "run", "--", PYTHON, "-c", code, environ=environ)
    terminals.append(terminal)
    terminal.expect("name? ")
    terminal.type("typed\n")
    terminal.expect("[True, True, True] True typed")
    terminal.expect("rlvr-probe: nothing was recorded")


@pytest.mark.parametrize(("key", "name"), [("\x03", "SIGINT"), ("\x1c", "SIGQUIT")])
def test_a_key_arrives_once(
    environ: dict[str, str], terminals: list[Terminal], key: str, name: str
) -> None:
    terminal = Terminal(LAUNCHER, "run", "--", PYTHON, "-c", COUNTER, environ=environ)
    terminals.append(terminal)
    terminal.expect("ready")
    for _ in range(3):
        terminal.type(key)
        time.sleep(0.3)
    terminal.type("\n")
    terminal.expect("counts ")
    assert terminal.expect("\r\n") == f"{{'{name}': 3}}"


def test_a_key_and_then_a_signal_are_two(
    environ: dict[str, str], terminals: list[Terminal]
) -> None:
    terminal = Terminal(LAUNCHER, "run", "--", PYTHON, "-c", COUNTER, environ=environ)
    terminals.append(terminal)
    terminal.expect("ready")
    terminal.type("\x03")
    time.sleep(0.3)
    os.kill(terminal.pid, signal.SIGINT)
    time.sleep(0.3)
    terminal.type("\n")
    terminal.expect("counts ")
    assert terminal.expect("\r\n") == "{'SIGINT': 2}"


def test_a_terminal_that_goes_away_ends_the_command(environ: dict[str, str]) -> None:
    # The kernel tells the leader of the session only, and that is the launcher here.
    code = "import os, time; print('pid', os.getpid(), '.', flush=True); time.sleep(60)"
    terminal = Terminal(LAUNCHER, "run", "--", PYTHON, "-c", code, environ=environ)
    terminal.expect("pid ")
    child = int(terminal.expect(" ."))
    os.close(terminal._master)
    until(lambda: not alive(child), "the command got the hangup")
    _, status = os.waitpid(terminal.pid, 0)
    assert os.waitstatus_to_exitcode(status) == 128 + signal.SIGHUP


def test_a_shell_stops_and_continues_it(environ: dict[str, str], terminals: list[Terminal]) -> None:
    terminal = Terminal("/bin/bash", "--norc", "--noprofile", "-i", environ=environ | {"PS1": "$ "})
    terminals.append(terminal)
    terminal.type(f"stty -echo; {LAUNCHER} run -- sh -c 'echo ready; exec cat'\n")
    terminal.expect("ready\r\n")
    for resumed in ("two", "three"):
        terminal.type("\x1a")
        terminal.expect("Stopped")
        terminal.expect("$ ")
        time.sleep(0.3)  # bash is still setting up its terminal: what is typed now may be lost
        terminal.type("echo the sh''ell\n")
        terminal.expect("the shell")
        terminal.type("fg\n")
        terminal.type(f"{resumed}\n")
        terminal.expect(f"{resumed}\r\n")
    terminal.type("\x04")
    terminal.expect("rlvr-probe: nothing was recorded")
    terminal.type("echo al''ive\n")
    terminal.expect("alive")


def test_a_command_stopped_by_somebody_is_continued_by_them(environ: dict[str, str]) -> None:
    with start(PYTHON, "-c", COUNTER, environ=environ, start_new_session=True) as launcher:
        ready(launcher)
        child = child_of(launcher)
        os.kill(child, signal.SIGSTOP)
        until(lambda: state(child) == "T", "the command is stopped")
        os.kill(child, signal.SIGCONT)
        time.sleep(0.2)
        output, _ = launcher.communicate("\n", timeout=60)
        assert (output, launcher.returncode) == ("counts {'SIGCONT': 1}\n", 0)


# ------------------------------------------------------------------------------ as pid 1


def test_as_pid_1_it_reaps_strangers_and_passes_signals_on(environ: dict[str, str]) -> None:
    namespace = ["unshare", "--fork", "--pid", "--mount-proc"]
    if subprocess.run([*namespace, "true"], capture_output=True, check=False).returncode:
        pytest.skip("no right to make a pid namespace here")
    # Leaves an orphan behind, and says how many zombies there are once that one has ended.
    code = """
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, lambda *_: (print("got it", flush=True), sys.exit(9)))
subprocess.run(["sh", "-c", "sleep 0.2 & exit"])
time.sleep(1)
for _ in range(600):
    stats = [open(f"/proc/{p}/stat").read() for p in os.listdir("/proc") if p.isdigit()]
    ended = sum(one.rpartition(")")[2].split()[0] == "Z" for one in stats)
    if not ended and not any("(sleep)" in one for one in stats):
        break
    time.sleep(0.1)
print(os.getppid(), ended, flush=True)
time.sleep(60)
"""
    command = [*namespace, LAUNCHER, "run", "--", PYTHON, "-c", code]
    with subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, text=True) as outside:
        assert outside.stdout is not None
        assert outside.stdout.readline() == "1 0\n"
        [launcher] = children(outside.pid)
        os.kill(launcher, signal.SIGTERM)
        assert outside.stdout.readline() == "got it\n"
        assert outside.wait(timeout=60) == 9
