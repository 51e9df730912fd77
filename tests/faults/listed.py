"""Functions that the injector cannot, or need not, treat like all others: each by name, and why.

The tests assert that these lists are exact: a function that no longer exists, or that now holds,
fails them.
"""

from __future__ import annotations

__all__ = ["AFTER", "NEVER", "PASSED_ON", "UNSEEN", "VALUE"]

AFTER = {
    "rlvr_probe._boot:_count": "rlvr_probe._boot:Watcher._find",
}
"""Called only once another function has failed; that one fails as well. Two at once are harmless,
too, but the second is not counted."""

_LAUNCHED = "below a launcher; test_notices.py, tests/e2e/test_reach.py"
_PREPARED = "where the run folder is somebody else's; test_access.py"
_SPOOL = "where a run is spooled, which a local folder is not; tests/e2e/test_spool.py"

NEVER = {
    "rlvr_probe.probe.attach:Attachment.folder": "asked by the user; test_attach.py",
    "rlvr_probe.probe.attach:_notify": _LAUNCHED,
    "rlvr_probe._boot:arm_late": "called by a framework that loads plugins; test_plugins.py",
    "rlvr_probe.access:Access.find": "asked by the launcher; test_access.py",
    "rlvr_probe.access:_group_name": "asked by commands; test_denied.py",
    "rlvr_probe.access:_sample": _PREPARED,
    "rlvr_probe.access:_share": "where the group may read; test_access.py",
    "rlvr_probe.access:barrier": "asked by commands; test_denied.py",
    "rlvr_probe.access:user_name": "asked by commands; test_denied.py",
    "rlvr_probe.access:whose": "asked by commands; test_denied.py",
    "rlvr_probe.config:_is_moved": "where no folder is named; test_config.py",
    "rlvr_probe.config:_lasting": "where no folder is named; test_config.py",
    "rlvr_probe.config:_upload": "where a lake is named; test_config.py",
    "rlvr_probe.config:access_of": "asked by commands; test_cli.py",
    "rlvr_probe.exceptions:StorageError.__init__": "raised in commands; test_lake.py",
    "rlvr_probe.probe.election:Keeper.follow": _PREPARED,
    "rlvr_probe.probe.election:gives_way": "where a sidecar is there already; test_election.py",
    "rlvr_probe.filesystem:_mounts.<locals>.<lambda>": "where a mount point has a blank",
    "rlvr_probe.guard:set_strict": "for tests of the probe",
    "rlvr_probe.probe.otel_environ:effective": "asked where there is a sidecar; test_handover.py",
    "rlvr_probe.probe.otel_environ:received": "asked where there is a sidecar; test_handover.py",
    "rlvr_probe.probe.hooks.wrapping:_async_example": "never called: only its code is looked at",
    "rlvr_probe.probe.hooks.wrapping:_example": "never called: only its code is looked at",
    "rlvr_probe.probe.identity:_raylet": "asked in a worker process of Ray; test_identity.py",
    "rlvr_probe.probe.identity:slurm_rank": "asked by the launcher, in a process of its own",
    "rlvr_probe.model.counters:_read": "runs while the module is imported",
    "rlvr_probe.model.names:_stage": "runs while the module is imported",
    "rlvr_probe.model.process_names:attributes": "runs while the module is imported",
    "rlvr_probe.model.schema:unpack_block": "asked by what reads a recording",
    "rlvr_probe.probe.launcher_notices:_clean_up": _LAUNCHED,
    "rlvr_probe.probe.launcher_notices:make": _LAUNCHED,
    "rlvr_probe.probe.launcher_notices:read": _LAUNCHED,
    "rlvr_probe.probe.launcher_notices:notify": _LAUNCHED,
    "rlvr_probe.registry:load_all": "asked by commands and by the sidecar; test_cli.py",
    "rlvr_probe.registry:load_all.<locals>.<lambda>": "the same",
    "rlvr_probe.probe.recorder.output_folder:OutputFolder._write_to": _PREPARED,
    "rlvr_probe.probe.recorder.recorder:Recorder.folder": "asked by the user; test_attach.py",
    "rlvr_probe.registry:names": "asked by the launcher; tests/e2e/test_launch.py",
    "rlvr_probe.registry:none_called_so": "of a name that is none; test_attach.py",
    "rlvr_probe.probe.hooks.adapter_probe:HookProbe.drop": "asked by an integration; test_hooks.py",
    "rlvr_probe.reading:on_host": "asked by an integration; test_reading.py",
    "rlvr_probe.reading:option": "asked by an integration; test_reading.py",
    "rlvr_probe.reading:scalar": "asked by an integration; test_reading.py",
    "rlvr_probe.reading:size": "asked by an integration; test_reading.py",
    "rlvr_probe.releases:DatedAdapter.expected": "asked by the launcher; test_releases.py",
    "rlvr_probe.releases:DatedAdapter.hook_points": "asked by an integration; test_releases.py",
    "rlvr_probe.releases:_from_metadata": "asked by an integration; test_releases.py",
    "rlvr_probe.releases:version_of": "asked by an integration; test_releases.py",
    "rlvr_probe.releases:within": "runs while the module of an integration is imported",
    "rlvr_probe.reading:digest": "asked by an integration; test_requests.py",
    "rlvr_probe.reading:reward": "asked by an integration; test_odd_rewards.py",
    "rlvr_probe.reading:rewards": "asked by an integration; test_odd_rewards.py",
    "rlvr_probe.probe.recorder.bookkeeping:Bookkeeping.forget": "on a full disk; test_journal.py",
    "rlvr_probe.spool:Target.__init__": _SPOOL,
    "rlvr_probe.spool:Target.is_there": _SPOOL,
    "rlvr_probe.spool:_check": _SPOOL,
    "rlvr_probe.spool:_check_place": _SPOOL,
    "rlvr_probe.spool:home": _SPOOL,
    "rlvr_probe.spool:_home_in": _SPOOL,
    "rlvr_probe.spool:_homes": _SPOOL,
    "rlvr_probe.spool:_name": _SPOOL,
    "rlvr_probe.spool:every": _SPOOL,
    "rlvr_probe.spool:find": _SPOOL,
    "rlvr_probe.spool:read_target": _SPOOL,
    "rlvr_probe.spool:write_target": _SPOOL,
    "rlvr_probe.probe.journal.space:write_room": _SPOOL,
    "rlvr_probe.probe.user_span:span._forget": "by an alarm as a span ends; test_interruptions.py",
}
"""Not called by the toy, and where they are."""

_CALL = "the user's own call, between a guarded begin and a guarded end"
_STAND_IN = "the user's own operation on a callable object, passed on and nothing else"
_THIN = "the user's call of a guarded function; holds nothing else that can fail"

PASSED_ON = {
    "rlvr_probe:__dir__": "Python's look into the package",
    "rlvr_probe:__getattr__": "Python's look into the package",
    "rlvr_probe._boot:Watcher.find_spec": "the import system's call of a guarded function",
    "rlvr_probe.guard:fail_open.<locals>.decorate.<locals>.guarded": "the guard itself",
    "rlvr_probe.probe.hooks.calls:_after_fork": "Python's call of a guarded function after a fork",
    "rlvr_probe.probe.hooks.monkeypatches:_bound_late.<locals>.late": _CALL,
    "rlvr_probe.probe.hooks.monkeypatches:_bound_late.<locals>.late_async": _CALL,
    "rlvr_probe.probe.hooks.proxies:AsyncCallableProxy.__call__": _STAND_IN,
    "rlvr_probe.probe.hooks.proxies:CallableProxy.__call__": _STAND_IN,
    "rlvr_probe.probe.hooks.proxies:CallableProxy.__delattr__": _STAND_IN,
    "rlvr_probe.probe.hooks.proxies:CallableProxy.__eq__": _STAND_IN,
    "rlvr_probe.probe.hooks.proxies:CallableProxy.__getattribute__": _STAND_IN,
    "rlvr_probe.probe.hooks.proxies:CallableProxy.__hash__": _STAND_IN,
    "rlvr_probe.probe.hooks.proxies:CallableProxy.__reduce_ex__": _STAND_IN,
    "rlvr_probe.probe.hooks.proxies:CallableProxy.__setattr__": _STAND_IN,
    "rlvr_probe.probe.hooks.wrapping:_Calls.__reduce__": "the user's pickling; returns constants",
    "rlvr_probe.probe.hooks.wrapping:_async_generator.<locals>.wrapper": _CALL,
    "rlvr_probe.probe.hooks.wrapping:_coroutine.<locals>.wrapper": _CALL,
    "rlvr_probe.probe.hooks.wrapping:_either.<locals>.wrapper": _CALL,
    "rlvr_probe.probe.hooks.wrapping:_either.<locals>.wrapper.<locals>.caller": _CALL,
    "rlvr_probe.probe.hooks.wrapping:_function.<locals>.wrapper": _CALL,
    "rlvr_probe.probe.hooks.wrapping:_generator.<locals>.wrapper": _CALL,
    "rlvr_probe.probe.hooks.wrapping:_recorded.<locals>.awaited": _CALL,
    "rlvr_probe.probe.import_hooks:_Unfinished.__setattr__": "Python's assignment, passed on",
    "rlvr_probe.probe.user_span:span.__aenter__": _THIN,
    "rlvr_probe.probe.user_span:span.__aexit__": _THIN,
    "rlvr_probe.probe.user_span:span.__call__": _THIN,
    "rlvr_probe.probe.user_span:span.__enter__": _THIN,
    "rlvr_probe.probe.user_span:span.__exit__": _THIN,
    "rlvr_probe.probe.user_span:span.__init__": _THIN,
}
"""Nothing can stand between these and the user: an error in their own lines is one of the user's
call. What they call is injected like everything else. They are made to sleep, too."""

_TEXT = "the text of an object that the user prints"
_CHECKED = "a setting; one that cannot be used is a ConfigError by contract"

VALUE = {
    "rlvr_probe.probe.attach:Attachment.__repr__": _TEXT,
    "rlvr_probe.probe.attach:Attachment.__str__": _TEXT,
    "rlvr_probe.probe.attach:attach": "the attachment that the user asked for",
    "rlvr_probe.config:_inheritable": _CHECKED,
    "rlvr_probe.config:_within": _CHECKED,
    "rlvr_probe.guard:fail_open.<locals>.decorate": "a guarded function",
    "rlvr_probe.probe.hooks.calls:Hook.__reduce__": "what the user's pickling asked for",
    "rlvr_probe.probe.hooks.wrapping:_Calls.__reduce__": "what the user's pickling asked for",
    "rlvr_probe.probe.hooks.adapter_probe:HookProbe.guarded": "what a framework is given",
}
"""Raise and sleep without harm; their value is what the user, or Python, asked for, so that garbage
in its place is seen."""

_NOTHING = "nothing is attached, or recorded: no journal, and a line in the log"
_HEADER = "no journal can be begun without its header: none, and a line in the log"
_JOURNAL = "writes the journal: none, or one without its closing row"
_CHILD = "a forked child records nothing then: its journal is missing"
_CLOSE = "writes the counts, or closes the journal: it has no closing row"

UNSEEN = {
    "rlvr_probe.probe.attach:Attachment.__init__": _NOTHING,
    "rlvr_probe.probe.attach:_at_exit": _CLOSE,
    "rlvr_probe.probe.attach:_attach": _NOTHING,
    "rlvr_probe.probe.attach:_attach_once": _NOTHING,
    "rlvr_probe.access:Access.make": _JOURNAL,
    "rlvr_probe.access:Access.open": _JOURNAL,
    "rlvr_probe.access:Access.own": _JOURNAL,
    "rlvr_probe.access:_candidates": _JOURNAL,
    "rlvr_probe.access:is_safe": _JOURNAL,
    "rlvr_probe.probe.journal.writer:epoch_pair": _NOTHING,
    "rlvr_probe.config:Config.access": _NOTHING,
    "rlvr_probe.config:Config.from_environ": _NOTHING,
    "rlvr_probe.config:_convert": _NOTHING,
    "rlvr_probe.config:_flag": _NOTHING,
    "rlvr_probe.config:_frameworks": _NOTHING,
    "rlvr_probe.config:_inheritable": _NOTHING,
    "rlvr_probe.config:_within": _NOTHING,
    "rlvr_probe.probe.election:Keeper.__init__": _NOTHING,
    "rlvr_probe.guard:faults": _CLOSE,
    "rlvr_probe.guard:reset": _CHILD,
    "rlvr_probe.probe.hooks.calls:_started_over": _CHILD,
    "rlvr_probe.probe.hooks.monkeypatches:Patches.__init__": _NOTHING,
    "rlvr_probe.probe.hooks.adapter_probe:HookProbe.__init__": _NOTHING,
    "rlvr_probe.probe.identity:_digest": _HEADER,
    "rlvr_probe.probe.identity:_folder_name": _NOTHING,
    "rlvr_probe.probe.identity:_int": _HEADER,
    "rlvr_probe.probe.identity:_rendezvous": _HEADER,
    "rlvr_probe.probe.identity:boot_id": _HEADER,
    "rlvr_probe.probe.identity:host": _HEADER,
    "rlvr_probe.probe.identity:ids": _HEADER,
    "rlvr_probe.probe.identity:job_key": _HEADER,
    "rlvr_probe.probe.identity:local_rank": _HEADER,
    "rlvr_probe.probe.identity:process_key": _NOTHING,
    "rlvr_probe.probe.identity:process_start_ticks": _HEADER,
    "rlvr_probe.probe.identity:rank": _HEADER,
    "rlvr_probe.probe.identity:run_id": _NOTHING,
    "rlvr_probe.probe.identity:world_size": _HEADER,
    "rlvr_probe.probe.journal.writer:_version": _HEADER,
    "rlvr_probe.probe.journal.writer:build_header": _HEADER,
    "rlvr_probe.probe.journal.opentable:OpenTable.abandon": _CHILD,
    "rlvr_probe.probe.journal.space:Space.__init__": _NOTHING,
    "rlvr_probe.probe.journal.writer:JournalWriter.__init__": _JOURNAL,
    "rlvr_probe.probe.journal.writer:JournalWriter._append": _JOURNAL,
    "rlvr_probe.probe.journal.writer:JournalWriter._append_rows": _JOURNAL,
    "rlvr_probe.probe.journal.writer:JournalWriter._encode": _JOURNAL,
    "rlvr_probe.probe.journal.writer:JournalWriter._new": _JOURNAL,
    "rlvr_probe.probe.journal.writer:JournalWriter._open": _JOURNAL,
    "rlvr_probe.probe.journal.writer:JournalWriter._ready": _JOURNAL,
    "rlvr_probe.probe.journal.writer:JournalWriter._write_chunk": _JOURNAL,
    "rlvr_probe.probe.journal.writer:JournalWriter.write": _JOURNAL,
    "rlvr_probe.probe.journal.writer:ignore": _JOURNAL,
    "rlvr_probe.model.schema:segment_name": _JOURNAL,
    "rlvr_probe.model.schema:sum_row": _JOURNAL,
    "rlvr_probe.probe.recorder.bookkeeping:Bookkeeping.__init__": _NOTHING,
    "rlvr_probe.probe.recorder.bookkeeping:Bookkeeping._changed": _CLOSE,
    "rlvr_probe.probe.recorder.bookkeeping:Bookkeeping._level": _CLOSE,
    "rlvr_probe.probe.recorder.bookkeeping:Bookkeeping.totals": _CLOSE,
    "rlvr_probe.probe.recorder.bookkeeping:definitions_since": _JOURNAL,
    "rlvr_probe.probe.recorder.loaded_libraries:DevicesUsed.__init__": _NOTHING,
    "rlvr_probe.probe.recorder.pause:Pause.__init__": _NOTHING,
    "rlvr_probe.probe.recorder.output_folder:OutputFolder.__init__": _NOTHING,
    "rlvr_probe.probe.recorder.output_folder:OutputFolder.make_writer": _JOURNAL,
    "rlvr_probe.registry:entries": _NOTHING,
    "rlvr_probe.registry:load": _NOTHING,
    "rlvr_probe.probe.recorder.recorder:Recorder.__init__": _NOTHING,
    "rlvr_probe.probe.recorder.recorder:Recorder._make_writer": _JOURNAL,
    "rlvr_probe.probe.recorder.recorder:Recorder._start_over": _NOTHING,
    "rlvr_probe.probe.recorder.recorder:Recorder.after_fork": _CHILD,
    "rlvr_probe.registry:_load": _NOTHING,
    "rlvr_probe.registry:discover": _NOTHING,
}
"""Errors of these are in no recording, as no journal can be written without them; what shows it."""
