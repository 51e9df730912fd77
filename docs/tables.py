"""The tables of the reference that are made from the code.

    .venv/bin/python docs/tables.py

writes them into the pages, between ``<!-- table: NAME -->`` and ``<!-- end -->``.
``tests/unit/test_docs.py`` fails where a page no longer says what the code says.
"""

from __future__ import annotations

import argparse
import importlib
import re
import struct
from collections.abc import Iterable, Sequence
from dataclasses import fields
from pathlib import Path
from textwrap import dedent

from rlvr_probe_otlp.exporter import OTLPExporter
from rlvr_probe_otlp.planning import device_metrics
from rlvr_probe_otlp.planning import names as otlp
from rlvr_probe_otlp.scraping.exposition import REGISTRY, prometheus_name

from rlvr_probe.analysis.ledger import MEANING
from rlvr_probe.analysis.metrics import CHAPTERS, DERIVED
from rlvr_probe.analysis.metrics.registry import DEFINITIONS, FAMILIES, SERIES
from rlvr_probe.cli import COMMANDS, CommandParser
from rlvr_probe.config import Config
from rlvr_probe.model import names, schema
from rlvr_probe.model.counters import COUNTERS
from rlvr_probe.recording.lake import COLUMNS
from rlvr_probe.recording.tables import TABLES as ANALYSIS_TABLES
from rlvr_probe.recording.tables import VIEWS

__all__ = ["TABLES", "command_parser", "fill", "pages", "settings"]

DOCS = Path(__file__).resolve().parent
_BLOCK = re.compile(r"(<!-- table: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)

_OPEN_HEADER = {
    "magic": f"`{schema.OPEN_MAGIC.decode()}`",
    "process": "process key, 16 hex digits",
    "heartbeat": "CLOCK_MONOTONIC of the last sign of life, ns",
    "overflow": "spans that found no free slot",
    "slots": "number of slots",
    "ended": "1 once the journal was closed in an orderly way",
    "lost": "rows lost so far",
    "written": "lines of the journal in all segments, headers included, without `sum` rows",
    "crc": "CRC-32 of everything before it",
}
_OPEN_SLOT = {
    "span": "id of the span; 0 if the slot is free. Written last, cleared first",
    "parent": "id of its parent, 0 for none",
    "start": "CLOCK_MONOTONIC, ns",
    "thread": "native thread id",
    "step": "trainer step, -1 if unknown",
    "name": "name of the span",
    "detail": "a few words, for example the reward function",
    "crc": "CRC-32 of everything before it; 0 if the slot is free",
}
_CODES = {"Q": "uint64", "I": "uint32", "q": "int64"}


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(cell.strip() for cell in line) + " |" for line in lines)


def names_table() -> str:
    """Every span and event."""
    rows = []
    for name in names.ALL:
        kind = "event" if name.event else "stage" if name.stage else "span"
        table = "yes" if name.coarse else ""
        otel = f"`{name.otel}`" if name.otel else ""
        rows.append((f"[`{name.name}`](#{name.name})", kind, table, otel, name.meaning))
    return _table(("name", "kind", "open table", "OpenTelemetry", "meaning"), rows)


def attributes_table() -> str:
    """What each span and event may carry."""
    parts = []
    for name in names.ALL:
        parts.append(f"### {name.name}\n\n{name.meaning[0].upper()}{name.meaning[1:]}.\n")
        if name.attributes:
            rows = [(f"`{one.name}`", one.unit, one.meaning) for one in name.attributes]
            parts.append(_table(("attribute", "unit", "meaning"), rows) + "\n")
        else:
            parts.append("It carries no attributes.\n")
    return "\n".join(parts).rstrip()


def counters_table() -> str:
    """Every counter of a device."""
    rows = [
        (
            f"`{one.name}`",
            one.unit,
            one.kind,
            one.pace,
            ", ".join(f"`{name}`" for name in (one.otel, one.otel_of_host) if name),
            one.meaning,
        )
        for one in COUNTERS
    ]
    return _table(("counter", "unit", "kind", "read", "OpenTelemetry", "meaning"), rows)


def settings() -> dict[str, str]:
    """Meaning of each field of ``Config``, from its docstring."""
    text = (Config.__doc__ or "").partition("Attributes:")[2]
    found = re.findall(r"^ {8}(\w+): (.*(?:\n {12}.*)*)", text, re.MULTILINE)
    return {name: re.sub(r"\s+", " ", meaning).strip() for name, meaning in found}


def settings_table() -> str:
    """Every setting with its variable and default."""
    meanings = settings()
    options = {
        action.dest: action.option_strings[0]
        for action in command_parser("run")._actions
        if action.option_strings
    }
    rows = []
    for one in fields(Config):
        variable = f"RLVR_PROBE_{one.name.upper()}"
        # The sentence that names the variable is the column beside it.
        meaning = re.sub(rf" ``{variable}``[^.]*\.", "", meanings[one.name])
        if one.name == "frameworks":
            meaning += " In a variable or option they are separated by commas."
        option = f"`{options[one.name]}`" if one.name in options else ""
        default = "" if one.default is None else f"`{one.default}`"
        if one.default is False:
            default = "off"
        rows.append((f"`{one.name}`", f"`{variable}`", option, default, meaning))
    return _table(("setting", "variable", "option of `run`", "default", "meaning"), rows)


def header_table() -> str:
    """Keys of a journal's first line."""
    rows = [(f"`{key}`", meaning) for key, meaning in schema.HEADER_KEYS.items()]
    return _table(("key", "what it holds"), rows)


def _layout(form: struct.Struct, meanings: dict[str, str]) -> str:
    codes = re.findall(r"\d*[a-zA-Z]", form.format)
    rows = []
    for index, (code, (name, meaning)) in enumerate(zip(codes, meanings.items(), strict=True)):
        offset = struct.calcsize("<" + "".join(codes[:index]))
        kind = _CODES.get(code, f"{code[:-1]} bytes")
        rows.append((str(offset), kind, name, meaning))
    return _table(("offset", "type", "field", "meaning"), rows)


def open_header_table() -> str:
    """First block of an open-span table."""
    return _layout(schema.OPEN_HEADER, _OPEN_HEADER)


def open_slot_table() -> str:
    """One slot of an open-span table."""
    return _layout(schema.OPEN_SLOT, _OPEN_SLOT)


def command_parser(command: str) -> CommandParser:
    """The parser of one command, as the command line makes it."""
    parser = argparse.ArgumentParser(prog="rlvr-probe")
    subparsers = parser.add_subparsers(parser_class=CommandParser)
    importlib.import_module(f"rlvr_probe.cli.{command}").add_parser(subparsers)
    found: CommandParser = subparsers.choices[command]
    return found


def commands_table() -> str:
    """Every command with its arguments."""
    parts = []
    for command in COMMANDS:
        parser = command_parser(command)
        parts.append(f"## {command}\n\n{parser.description}\n")
        rows = []
        for action in parser._actions:
            if action.dest in ("help", "command"):
                continue
            word = action.metavar if isinstance(action.metavar, str) else ""
            word += "..." if action.nargs == "+" else ""
            name = " ".join((*action.option_strings[:1], word)).strip()
            need = "required" if action.required else ""
            rows.append((f"`{name}`", need, action.help or ""))
        if command in ("run", "replay"):
            rows.append(("`-- COMMAND...`", "required", "the command and its arguments"))
        parts.append(_table(("argument", "", "meaning"), rows) + "\n")
    return "\n".join(parts).rstrip()


def lake_columns_table() -> str:
    """What a list of runs says of each."""
    rows = [(f"`{name}`", kind, meaning) for name, (kind, meaning) in COLUMNS.items()]
    return _table(("column", "type", "meaning"), rows)


def otlp_options_table() -> str:
    """Options of the destination ``otlp``."""
    parser = argparse.ArgumentParser(add_help=False)
    OTLPExporter().add_arguments(parser)
    rows = []
    for action in parser._actions:
        word = action.metavar if isinstance(action.metavar, str) else ""
        name = " ".join((action.option_strings[0], word)).strip()
        rows.append((f"`{name}`", action.help or ""))
    return _table(("option", "meaning"), rows)


def otlp_spans_table() -> str:
    """Every span that goes out."""
    rows = [(f"`{sent}`", f"[`{name}`](names.md#{name})") for name, sent in otlp.SPANS.items()]
    rows.append((f"`{otlp.RANK_STEP}`", "the step as one of several ranks did it"))
    rows.append((f"`{otlp.OUTSIDE}`", "root of what an attempt did outside of its steps"))
    return _table(("span", "recorded as"), rows)


def otlp_attributes_table() -> str:
    """Every attribute that goes out under a name of ours or of a recording."""
    meanings = {one.name: one.meaning for name in names.ALL for one in name.attributes}
    rows = [(f"`{sent}`", meanings[name]) for name, sent in otlp.ATTRIBUTES.items()]
    for (span, name), sent in otlp.SPECIAL.items():
        rows.append((f"`{sent}`", f"{meanings[name]}, of {span}"))
    rows += [(f"`{name}`", meaning) for name, meaning in otlp.OWN.items()]
    rows += [(f"`{name}`", meaning) for name, (meaning, _) in device_metrics.SPAN_USE.items()]
    return _table(("attribute", "meaning"), rows)


def otlp_metrics_table() -> str:
    """Every metric that goes out."""
    rows = [
        (f"`{one.name}`", one.unit, one.kind, f"`{prometheus_name(one)}`", one.meaning)
        for one in REGISTRY.values()
    ]
    return _table(("metric", "unit", "kind", "in Prometheus", "meaning"), rows)


def figures_table() -> str:
    """Every quantity, figure and series of every chapter."""
    parts = []
    for chapter in CHAPTERS:
        parts.append(f"### {chapter}\n")
        figures = [one for one in DEFINITIONS.values() if one.id.split(".")[0] == chapter]
        quantities = [
            (f"`{one.id.removesuffix('.mean')}`", one.unit, one.title.partition(":")[0],
             one.quantity)
            for one in figures
            if one.quantity and one.id.endswith(".mean")
        ]  # fmt: skip
        others = [
            (f"`{one.id}`", one.unit, ", ".join(one.by), one.title, one.meaning)
            for one in figures
            if not one.quantity
        ]
        series = [
            (f"`{one.id}`", ", ".join(f"`{name}`" for name in one.units), one.meaning)
            for one in SERIES.values()
            if one.id.split(".")[0] == chapter
        ]
        if quantities:
            parts.append(_table(("quantity", "unit", "title", "meaning"), quantities) + "\n")
        if others:
            heads = ("figure", "unit", "for each", "title", "meaning")
            parts.append(_table(heads, others) + "\n")
        if series:
            parts.append(_table(("series", "columns", "meaning"), series) + "\n")
    return "\n".join(parts).rstrip()


def analysis_tables() -> str:
    """Every table of the analysis, with its columns."""
    parts = []
    for table in ANALYSIS_TABLES:
        rows = [
            (f"`{column.name}`", column.type, column.unit, column.meaning)
            for column in table.columns
        ]
        parts.append(f"### {table.name}\n\n{table.meaning[0].upper()}{table.meaning[1:]}.\n")
        parts.append(_table(("column", "type", "unit", "meaning"), rows) + "\n")
    return "\n".join(parts).rstrip()


def analysis_views() -> str:
    """Every view over them."""
    return _table(("view", "SQL"), [(f"`{name}`", f"`{query}`") for name, query in VIEWS.items()])


def quantities_table() -> str:
    """The figures that every quantity has."""
    family = FAMILIES["lengths.prompt"]
    [quantity] = {metric.quantity for metric in family.metrics.values()}
    rows = [
        (
            f"`{name}`",
            "its own" if metric.unit == "tokens" else metric.unit,
            metric.title.removeprefix("prompt: "),
            metric.meaning.removesuffix(f"{quantity}.") + "...",
        )
        for name, metric in family.metrics.items()
    ]
    return _table(("end of the id", "unit", "title", "meaning"), rows)


def derived_tables() -> str:
    """What the chapters make before they ask."""
    parts = []
    for name, (meaning, sql) in DERIVED.items():
        text = dedent(sql).strip()
        parts.append(f"### {name}\n\n{meaning[0].upper()}{meaning[1:]}.\n\n```sql\n{text}\n```\n")
    return "\n".join(parts).rstrip()


def ledger_table() -> str:
    """Every category of the ledger."""
    rows = [(f"`{name}`", meaning) for name, meaning in MEANING.items()]
    return _table(("category", "of one GPU, the time"), rows)


TABLES = {
    "ledger": ledger_table,
    "figures": figures_table,
    "analysis_tables": analysis_tables,
    "analysis_views": analysis_views,
    "quantities": quantities_table,
    "derived": derived_tables,
    "names": names_table,
    "attributes": attributes_table,
    "counters": counters_table,
    "settings": settings_table,
    "header": header_table,
    "open_header": open_header_table,
    "open_slot": open_slot_table,
    "commands": commands_table,
    "lake_columns": lake_columns_table,
    "otlp_options": otlp_options_table,
    "otlp_spans": otlp_spans_table,
    "otlp_attributes": otlp_attributes_table,
    "otlp_metrics": otlp_metrics_table,
}


def fill(text: str) -> str:
    """``text`` with every marked table as the code has it."""
    return _BLOCK.sub(lambda m: f"{m[1]}\n{TABLES[m[2]]()}\n\n{m[3]}", text)


def pages() -> list[Path]:
    """Pages that hold a table."""
    return [page for page in sorted(DOCS.rglob("*.md")) if _BLOCK.search(page.read_text("utf-8"))]


if __name__ == "__main__":
    for page in pages():
        page.write_text(fill(page.read_text("utf-8")), "utf-8")
