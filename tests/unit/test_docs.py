"""What the documentation says of commands, options, names and links is so."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest

from docs import tables
from rlvr_probe import cli, launch
from rlvr_probe.analysis.finding import Verdict, standing_of
from rlvr_probe.analysis.stuck import examine
from rlvr_probe.config import Config
from rlvr_probe.probe import identity
from rlvr_probe.recording.follow.member import Member, Work
from rlvr_probe.recording.header import Header
from rlvr_probe.report.stuck import Stacks, stuck_document

ROOT = Path(__file__).parents[2]
PAGES = [
    path.relative_to(ROOT).as_posix()
    for pattern in ("*.md", "docs/**/*.md", "integrations/*/*.md", "exporters/*/*.md")
    for path in sorted(ROOT.glob(pattern))
    if "_build" not in path.parts
]
FENCE = re.compile(r"^```+\{?(\w*)[^\n]*\n(.*?)^```+$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


def read(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def prose(page: str) -> str:
    return FENCE.sub("", read(page))


def anchors(path: Path) -> set[str]:
    """Anchors of a page's headings, as GitHub and MyST make them."""
    headings = re.findall(r"^#+ (.*)$", FENCE.sub("", path.read_text("utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", text.lower()).strip().replace(" ", "-") for text in headings}


def leads_somewhere(page: str, link: str) -> bool:
    name, _, anchor = link.partition("#")
    target = (ROOT / page).parent / name if name else ROOT / page
    return target.exists() and (not anchor or anchor in anchors(target))


def test_every_relative_link_leads_somewhere() -> None:
    links = [(page, link) for page in PAGES for link in LINK.findall(prose(page))]
    relative = [(page, link) for page, link in links if not re.match(r"[a-z]+:", link)]
    assert len(relative) > len(PAGES)
    assert [one for one in relative if not leads_somewhere(*one)] == []


def test_no_page_names_a_folder_of_somebody_s_machine() -> None:
    folder = re.compile(r"(?<![\w.}])/(?:work|root|home|Users)/\S*")
    assert {page: named for page in PAGES if (named := folder.findall(read(page)))} == {}


def shell_lines(page: str) -> Iterator[str]:
    """Command lines of a page's shell blocks."""
    for language, body in FENCE.findall(read(page)):
        lines = body.replace("\\\n", " ").splitlines()
        if language == "console":
            yield from (line[2:] for line in lines if line.startswith("$ "))
        elif language == "bash":
            yield from lines


def of_the_probe(line: str) -> list[str] | None:
    """Arguments of the ``rlvr-probe`` in a command line, None if there is none."""
    words = shlex.split(line, comments=True)
    found = [index for index, word in enumerate(words) if Path(word).name == "rlvr-probe"]
    return words[found[0] + 1 :] if found else None


def is_taken(line: str) -> bool:
    """Whether the program takes this command line."""
    command, *arguments = of_the_probe(line) or [""]
    if command not in cli.COMMANDS:
        return False
    try:
        parsed = tables.command_parser(command).parse_args(arguments)
    except SystemExit:
        return False
    return command != "run" or any(word != "--" for word in parsed.command)


def test_every_command_line_is_one_that_the_program_takes() -> None:
    commands = [
        (page, line)
        for page in PAGES
        for line in shell_lines(page)
        if of_the_probe(line) is not None
    ]
    assert len(commands) > 20
    assert [(page, line) for page, line in commands if not is_taken(line)] == []


def exists(words: str) -> bool:
    """Whether there is this command, with these options."""
    command, *arguments = words.partition(" -- ")[0].split()
    if command == "--version":
        return True
    if command not in cli.COMMANDS:
        return False
    parser = tables.command_parser(command)
    if parser.extend is not None and "NAME" not in arguments:
        parser.extend(parser, arguments)
    options = {word.strip("[]") for word in arguments if word.startswith(("--", "[--"))}
    return options <= {"--", *parser._option_string_actions}


def test_every_command_named_in_a_sentence_exists_with_its_options() -> None:
    named = re.compile(r"`(?:\.venv/bin/)?rlvr-probe ([^`]+)`")
    commands = [(page, words) for page in PAGES for words in named.findall(prose(page))]
    assert len(commands) > 20
    assert [(page, words) for page, words in commands if not exists(words)] == []


def test_the_documented_commands_are_all_there_are() -> None:
    usage = FENCE.findall(read("docs/reference/cli.md"))[0][1]
    documented = {}
    for command in cli.COMMANDS:
        [line] = re.findall(rf"^rlvr-probe {command} (.*)$", usage, re.MULTILINE)
        documented[command] = set(re.findall(r"--[a-z][a-z-]*", line))
    real = {
        command: set(tables.command_parser(command)._option_string_actions) - {"-h", "--help"}
        for command in cli.COMMANDS
    }
    assert documented == real


def test_a_table_made_from_the_code_is_as_the_code_has_it() -> None:
    # Out of date: .venv/bin/python docs/tables.py
    pages = {path.relative_to(ROOT).as_posix(): path.read_text("utf-8") for path in tables.pages()}
    assert pages == {page: tables.fill(text) for page, text in pages.items()}


def test_every_table_is_on_a_page() -> None:
    text = "".join(path.read_text("utf-8") for path in tables.pages())
    assert [name for name in tables.TABLES if f"<!-- table: {name} -->" not in text] == []


def test_every_setting_is_described_where_it_is_defined() -> None:
    assert list(tables.settings()) == list(Config.__dataclass_fields__)


def test_every_exit_code_is_documented() -> None:
    codes = [cli.OK, cli.UNSOUND, cli.UNABLE, cli.INTERRUPTED]
    codes += [launch.NOT_FOUND, launch.NOT_EXECUTABLE]
    rows = set(re.findall(r"^\| (\d+) \|", read("docs/reference/cli.md"), re.MULTILINE))
    assert rows == {str(code) for code in codes}


def test_every_command_is_named_where_exit_codes_and_json_are() -> None:
    text = read("docs/reference/cli.md")
    codes, json = (
        re.findall(rf"^## {one}\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)[0]
        for one in ("Exit codes", "JSON")
    )
    [heads] = re.findall(r"^\| code \| (.*,.*) \|$", codes, re.MULTILINE)
    # Those two have codes of their own, below the table.
    assert set(re.findall(r"`(\w+)`", heads)) == set(cli.COMMANDS) - {"run", "sidecar"}
    assert re.search(r"^\| code \| `run` \|$", codes, re.MULTILINE)
    assert re.search(r"^`sidecar` ends with 0 ", codes, re.MULTILINE)
    [unsound] = re.findall(rf"^\| {cli.UNSOUND} \| (.*) \|$", codes, re.MULTILINE)
    for command in cli.COMMANDS:
        code = (ROOT / "src/rlvr_probe/cli" / f"{command}.py").read_text("utf-8")
        assert ("UNSOUND" in code) == (f"`{command}`" in unsound), command
        options = tables.command_parser(command)._option_string_actions
        assert ("--json" in options) == (f"`{command} --json`" in json), command


def test_what_stuck_prints_as_json_is_what_is_documented() -> None:
    stacks: Stacks = {(1, None): [("f", "a.py", 1)]}
    members = [hanging()]
    findings = examine(members, "boot", 10**12)
    found = stuck_document("run", findings, standing_of(members, findings, 10**12), stacks)
    text = read("docs/reference/cli.md").partition("\n## JSON")[2]
    [sentence] = re.findall(r"^It has `run`.*$", text, re.MULTILINE)
    assert set(found) <= set(re.findall(r"`(\w+)`", sentence))
    rows = re.findall(r"^\| `(\w+)` \| [^|]* \| ([^|]*) \|$", text, re.MULTILINE)
    [entry] = found["findings"]
    assert [key for key, _ in rows] == list(entry)
    meanings = dict(rows)
    assert set(re.findall(r"`(\w+)`", meanings["verdict"])) == set(get_args(Verdict))
    explained = read("docs/howto/find-what-a-run-is-stuck-on.md").partition("| what it means |")[2]
    assert set(re.findall(r"^\| `(\w+)` \|", explained, re.MULTILINE)) == set(get_args(Verdict))
    assert set(re.findall(r"`(\w+)`", meanings["stack"])) == set(entry["stack"][0])


def hanging() -> Member:
    header = Header(
        "0" * 16, 0, "run", "job", None, "host", "boot", 1, 1, 1, 0, 0, "", 1, "", 0, None, None, {}
    )
    return Member(header, "running", (Work(1, 0, "turn", "", 0),), heartbeat_ns=10**12)


def test_every_id_that_is_taken_from_the_environment_is_documented() -> None:
    text = read("docs/reference/journal.md").partition("### `ids`")[2].partition("\n## ")[0]
    assert set(re.findall(r"`(\w+)`", text)) == {*identity._IDS, *identity._IDS.values()}


@pytest.mark.parametrize(
    ("page", "source", "counter"),
    [
        ("journal.md", "probe/journal", "lost"),
        ("journal.md", "probe/recorder", "lost"),
        ("show-json.md", "recording", "skipped"),
    ],
)
def test_every_reason_of_a_loss_is_documented(page: str, source: str, counter: str) -> None:
    code = "".join(
        path.read_text("utf-8") for path in (ROOT / "src" / "rlvr_probe" / source).rglob("*.py")
    )
    reasons = set(re.findall(rf'\b(?:{counter}\[|skip\()"(\w+)"', code))
    assert reasons
    rows = set(re.findall(r"`(\w+)`", read(f"docs/reference/{page}")))
    assert reasons - rows == set()
