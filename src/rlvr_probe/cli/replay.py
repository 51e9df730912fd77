"""``rlvr-probe replay``: a recorded workload, done again by a command of the user's."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from rlvr_probe.cli import OK, UNABLE, UNSOUND, Subparsers, complain
from rlvr_probe.exceptions import ProbeError, RecordingError, SteeringError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rlvr_probe.access import Access
    from rlvr_probe.model.replay_note import ReplayNote
    from rlvr_probe.model.workload import ReadWorkload, Workload
    from rlvr_probe.steering import Plan, Replay

__all__ = ["add_parser", "execute"]


def add_parser(subparsers: Subparsers) -> None:
    """Add the arguments of ``replay``."""
    parser = subparsers.add_parser(
        "replay",
        help="let a run repeat the lengths, waits and rewards of a recorded one",
        usage="rlvr-probe replay WORKLOAD [options] -- COMMAND...",
        description="Run COMMAND, which trains with a supported framework, and let each step of it"
        " have the prompt and response lengths, groups, rewards and times of reward functions of a"
        " recorded workload. It is recorded as by run, and ends with the card of fidelity where"
        " WORKLOAD is a recording.",
        epilog="Exit status: that of COMMAND; 1 if it ended well and replayed a part only; 2 if"
        " the workload cannot be replayed, or nothing was.",
    )
    parser.add_argument(
        "workload",
        metavar="WORKLOAD",
        type=Path,
        help="a run folder, a folder of runs: the newest, or a workload directory",
    )
    parser.add_argument(
        "--steps", metavar="FIRST:LAST", type=_steps, help="trainer steps to take, both included"
    )
    parser.add_argument(
        "--scale-lengths", metavar="1/64", type=_factor, help="make all lengths shorter by this"
    )
    parser.add_argument(
        "--response-length", metavar="N", type=int, help="longest response allowed, if unknown"
    )
    parser.add_argument(
        "--rewards",
        choices=("sleep", "real"),
        default="sleep",
        help="sleep as long as recorded and return what was recorded, or use those of COMMAND",
    )
    parser.add_argument(
        "--naive",
        action="store_true",
        help="mean lengths, waits and rewards instead: a row to compare a replay with",
    )
    parser.add_argument(
        "--half",
        choices=("rollout", "training"),
        help="of each step, generate and reward alone, or train alone on drawn tokens",
    )
    parser.add_argument(
        "--out", metavar="DIR", help="folder of recordings (default: ./rlvr-probe-runs)"
    )
    parser.add_argument(
        "--print-overrides",
        action="store_true",
        help="print the settings that COMMAND has to have, and run nothing",
    )
    parser.extend = _separate
    parser.set_defaults(execute=execute, parser=parser, command=())


def _separate(parser: argparse.ArgumentParser, arguments: Any) -> None:
    """Take the command off the end. As an argument it would take options after WORKLOAD, too."""
    if "--" in arguments:
        at = arguments.index("--")
        parser.set_defaults(command=arguments[at + 1 :])
        del arguments[at:]


def _steps(text: str) -> tuple[int, int]:
    first, colon, last = text.partition(":")
    if not (colon and first.isdecimal() and last.isdecimal() and int(first) <= int(last)):
        raise argparse.ArgumentTypeError(f"found {text}, expected FIRST:LAST, for example 5:20")
    return int(first), int(last)


def _factor(text: str) -> Fraction:
    try:
        factor = Fraction(text)
    except (ValueError, ZeroDivisionError):
        factor = Fraction(0)
    if not 0 < factor <= 1:
        raise argparse.ArgumentTypeError(f"found {text}, expected a share such as 1/64 or 0.25")
    return factor


def execute(args: argparse.Namespace) -> int:
    """Replay the workload and return the exit code."""
    from rlvr_probe.model.replay_note import ReplayNote
    from rlvr_probe.steering.scale import make_naive, scale_lengths, shape

    if not args.command and not args.print_overrides:
        args.parser.error("COMMAND is missing; it comes after --")
    plan, recorded = _plan(args)
    lines = [f"lengths as recorded: {shape(plan)}"]
    if args.scale_lengths is not None:
        plan = scale_lengths(plan, args.scale_lengths)
        lines.append(f"lengths x {args.scale_lengths}: {shape(plan)}")
    if args.naive:
        plan = make_naive(plan)
        lines.append(f"naive: {shape(plan)}")
    replays, refusals = _fitting(plan)
    if args.print_overrides:
        for name, why in refusals.items():
            complain(f"{name}: {why}")
        for replay in replays:
            settings = replay.settings(plan).items()
            print(replay.name, *(f"{name}={value}" for name, value in settings))
        return OK if replays else UNABLE
    if not replays:
        whys = "; ".join(f"{name}: {why}" for name, why in refusals.items())
        raise SteeringError(f"no installed framework can replay {plan.source}: {whys or 'none is'}")
    complain(
        f"replaying {plan.steps} of {plan.source}: {len(plan.batches):,} batches,"
        f" {sum(1 for _ in plan.groups):,} groups, {sum(1 for _ in plan.samples):,} samples"
    )
    for line in (*lines, *plan.notes):
        complain(f"replay: {line}")
    slept = [what for what, planned in (
        ("reward", plan.functions and plan.half != "training"),
        ("tool_call", any(sample.tools for sample in plan.samples)),
    ) if planned]  # fmt: skip
    note = ReplayNote(
        source=plan.source,
        steps=tuple(batch.step for batch in plan.batches),
        cap=plan.cap,
        scale=None if args.scale_lengths is None else str(args.scale_lengths),
        naive=args.naive,
        slept=tuple(slept),
        half=plan.half,
    )
    folders = list[Path]()
    status = _launch(plan, note, args.command, args.out, folders)
    if status == OK and recorded is not None:
        _show_card(recorded, folders)
    return status


def _show_card(recorded: Path, folders: Sequence[Path]) -> None:
    """Say how like the recording its replay is, where that can be found out here."""
    import signal
    from importlib.util import find_spec

    from rlvr_probe.launch.foreground import FORWARDED

    # The launcher blocked them, to pass them on to the command.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, FORWARDED)
    if not folders or find_spec("duckdb") is None:
        complain("replay: rlvr-probe fidelity, with the extra analysis, says how like it is")
        return
    from rlvr_probe.cli.fidelity import make_cards
    from rlvr_probe.report.fidelity import lay_out_cards
    from rlvr_probe.report.render import draw

    try:
        draw(lay_out_cards(make_cards(recorded, folders)), sys.stderr)
    except (ProbeError, OSError) as error:
        complain(f"replay: how like it is cannot be said: {error}")


def _keep(note: ReplayNote, folders: list[Path], folder: Path, access: Access) -> None:
    """Write a note into a run folder, whole or not at all; then add that to ``folders``."""
    from rlvr_probe.model.replay_note import NOTE, encode_note

    part = folder / f".{NOTE}.{os.getpid()}"
    try:
        access.make(folder)
        with open(access.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), "wb") as file:
            file.write(encode_note(note))
        os.replace(part, folder / NOTE)
        folders.append(folder)
    except OSError as error:
        complain(f"replay: what it repeated is not kept in {folder.name}: {error.strerror}")


def _launch(
    plan: Plan, note: ReplayNote, command: Sequence[str], out: str | None, folders: list[Path]
) -> int:
    """Run the command, steered by ``plan``, and say what it replayed; its run is in ``folders``."""
    from rlvr_probe.config import DISABLED, REPLAY, Config
    from rlvr_probe.launch import launch
    from rlvr_probe.steering.plan import write_plan
    from rlvr_probe.steering.progress import PLAN, read_outcome

    if Config.from_environ(os.environ, out=out).disabled:
        raise SteeringError(f"{DISABLED} is set, and a replay is recorded; unset it")
    with tempfile.TemporaryDirectory(prefix="rlvr-probe-replay-") as folder:
        write_plan(plan, Path(folder, PLAN))
        status = launch(command, out=out, more={REPLAY: folder}, then=partial(_keep, note, folders))
        if sys.stdout is None:
            # Closed by the process that started us. What ends every command flushes it.
            sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - for good
        outcome = read_outcome(Path(folder))
    for failure in outcome.failures:
        complain(f"replay: {failure}")
    missing = [batch.step for at, batch in enumerate(plan.batches) if at not in outcome.done]
    if not missing:
        complain(f"replayed all {len(plan.batches):,} batches")
        return status
    if len(missing) < len(plan.batches):
        steps = ", ".join(map(str, dict.fromkeys(missing)))
        done = len(plan.batches) - len(missing)
        complain(
            f"replayed {done:,} of {len(plan.batches):,} batches; missing are those of recorded"
            f" steps {steps}"
        )
        return status or UNSOUND
    why = (
        f"{', '.join(sorted(outcome.frameworks))} was imported, and generated no batch of the plan"
        if outcome.frameworks
        else "COMMAND imported no framework that can be steered, or in a Python without rlvr-probe"
    )
    complain(f"nothing was replayed: {why}")
    return status or UNABLE


def _plan(args: argparse.Namespace) -> tuple[Plan, Path | None]:
    """What to do, and the run folder that it is from, where it is from one."""
    from rlvr_probe.steering.build import make_plan

    name, workload, recorded = _read(args.workload)
    plan = make_plan(
        workload,
        source=name,
        steps=args.steps,
        response_cap=args.response_length,
        sleep=args.rewards == "sleep",
        half=args.half,
    )
    return plan, recorded


def _read(path: Path) -> tuple[str, Workload | ReadWorkload, Path | None]:
    """The workload of a recording with its folder, or the one in a directory; first its name."""
    from rlvr_probe.cli.chosen_run import choose_run, read_chosen
    from rlvr_probe.cli.installed_exporters import find_reader
    from rlvr_probe.recording import check_readable
    from rlvr_probe.workload import build_workload

    check_readable(path)
    try:
        choose_run(path)
    except RecordingError:
        reader = find_reader(path) if path.is_dir() else None
        if reader is None:
            raise
        found = reader.read(path)
        return found.name, found, None
    folder, trace = read_chosen(path)
    return folder.name, build_workload(trace), folder


def _fitting(plan: Plan) -> tuple[list[Replay], Mapping[str, str]]:
    """The installed replays that can do ``plan``, and why others cannot."""
    from rlvr_probe.registry import load_all
    from rlvr_probe.steering import GROUP

    replays, refusals = list["Replay"](), dict[str, str]()
    for plugin in load_all(GROUP):
        if plugin.error is not None:
            refusals[plugin.name] = f"{plugin.source} cannot be loaded: {plugin.error}"
            continue
        replay = cast("Replay", plugin.made)
        if why := replay.refusal(plan):
            refusals[replay.name] = why
        else:
            replays.append(replay)
    return replays, refusals
