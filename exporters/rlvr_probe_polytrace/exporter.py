"""The exporter ``polytrace``: what ``rlvr-probe convert`` and ``rlvr-probe validate`` call."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rlvr_probe.exporter import Problem, Written
from rlvr_probe.model.workload import ReadWorkload, Workload
from rlvr_probe_polytrace.files import FLAVORS, STEP_NAME
from rlvr_probe_polytrace.read import read_workload
from rlvr_probe_polytrace.validate import validate_directory
from rlvr_probe_polytrace.write import write_workload

__all__ = ["PolyTraceExporter"]


class PolyTraceExporter:
    """Workloads in the format of PolyTrace.

    Packed lengths with reward timings and filter indices, or multi-turn trajectories.
    """

    name = "polytrace"
    flavors = FLAVORS

    def write(
        self, workload: Workload, directory: Path, *, keep_names: bool, flavor: str | None = None
    ) -> Written:
        """Write ``workload`` into ``directory``, which exists and is empty.

        Args:
            workload: Complete steps of one run.
            directory: Absolute; nothing outside it is touched.
            keep_names: Keep names of reward functions and tools.
            flavor: ``packed`` or ``multiturn``; by default multi-turn if any trajectory had several
                turns, called a tool or holds tokens that the model did not generate.

        Raises:
            WorkloadError: The format cannot say this workload.
        """
        return write_workload(workload, directory, keep_names=keep_names, flavor=flavor)

    def recognizes(self, directory: Path) -> bool:
        """Whether ``directory`` holds step files of PolyTrace, judged by their names."""
        try:
            return any(STEP_NAME.fullmatch(path.name) for path in directory.iterdir())
        except OSError:
            return False

    def validate(
        self,
        directory: Path,
        *,
        steps: Sequence[int] | None = None,
        response_cap: int | None = None,
    ) -> Sequence[Problem]:
        """Every problem found in ``directory``, in file and line order; empty if it is sound.

        Args:
            directory: Read as a stream; nothing in it is trusted.
            steps: Judge these workload steps only, and expect each to be there. By default every
                step is judged, and a hole in their numbers is only a warning unless another file
                refers to the missing step: a trainer that counts validation leaves holes.
            response_cap: Longest response allowed, tokens; by default that of the manifest, or
                none where there is no manifest.

        Raises:
            ValidationError: It cannot be read, or holds no step file.
        """
        return validate_directory(directory, steps, response_cap)

    def read(self, directory: Path) -> ReadWorkload:
        """Everything in ``directory``, by any collector; ``x_rlvr`` is used where present.

        Args:
            directory: Read as a stream; nothing in it is trusted.

        Raises:
            ValidationError: It cannot be read, holds no step file, or a record breaks the format.
        """
        return read_workload(directory)
