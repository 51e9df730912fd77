"""Holds the words of the project: plain, positive, one for each thing. ``make lint`` runs it.

Looks at pages, and at comments, docstrings, messages and names of product code. A line of code or
prose inside backticks is not prose.
"""

from __future__ import annotations

import ast
import io
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import Final

__all__ = ["RULES", "faults_of_page", "faults_of_source"]

ROOT: Final = Path(__file__).parents[1]
_PRODUCT: Final = ("src/", "integrations/", "exporters/")
_COMPARISON: Final = (
    "better|earlier|fewer|greater|higher|larger|later|less|longer|lower|more|older|shorter|slower"
    "|smaller|wider|worse"
)
RULES: Final = {
    r"\ba training\b|\btrainings\b": "run",
    r"\b(begins?|began|begun|beginnings?)\b(?!:)": "start",
    r"\btells?\b(?! apart)|\btold\b(?! apart|:)|\btelling\b(?! apart)": "record, report or say",
    r"\bon one side only\b": "unmatched",
    r"\b(left|leaves?|leaving) out\b": "omit or drop",
    r"\bchapters?\b": "section",
    r"\bwho has (it|them)\b": "owner",
    r"\bwhat (it is|they are) at\b": "currently",
    r"\bnobody\b|\bno one\b|\bno-one\b": "unknown, or who does it",
    rf"(?<!there )\b(is|are|was|were|be) no (?!({_COMPARISON})\b)[a-z]+": "is not a ...",
    r"\bis known to have\b": "has",
    r"\bless without (it|them)\b|\bwithout (it|them) [\d.]+": "removing it would save",
    r"\bfound nothing that\b": "OK: ...",
    r"\bthere (is|are) no figures?\b": "omitted",
    r"\bfigures? of\b": "metric",
    r"\bof (no )?account\b": "ignored",
    r"\bwhoever\b|\bwhatever else\b": "who or what it is",
    r"\bthe one who\b|\bthe ones who\b": "who",
    r"\bas it likes\b|\bas they like\b": "what it does",
}
"""What is not said, and what is said instead."""

_RULES: Final = [(re.compile(rule, re.IGNORECASE), instead) for rule, instead in RULES.items()]
_FENCE: Final = re.compile(r"^ *(```|~~~).*?^ *\1 *$", re.MULTILINE | re.DOTALL)
_CODE: Final = re.compile(
    r"``?[^`\n]+``?|\{[^{}\n]*\}|\]\([^)\n]*\)|<[^>\n]*>|^\$ .*$", re.MULTILINE
)


def faults_of_page(text: str) -> Iterator[str]:
    """``LINE: WORDS: INSTEAD`` for each of them in a page."""
    yield from _faults(_FENCE.sub(_blank, text))


def faults_of_source(text: str) -> Iterator[str]:
    """The same of a module: comments, texts, and the name ``one``, which says nothing."""
    prose = [""] * (text.count("\n") + 2)
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT or (
            token.type == tokenize.STRING and _is_prose(token.string)
        ):
            for number, line in enumerate(token.string.split("\n"), token.start[0]):
                prose[number] += f" {line}"
        elif token.type == tokenize.NAME and token.string == "one":
            yield f"{token.start[0]}: one: a noun of what it is"
    yield from _faults("\n".join(prose[1:]))


def _is_prose(literal: str) -> bool:
    """Whether a text is a sentence, and not a name or a query."""
    if literal.lstrip("rbfRBF").startswith(("'''", '"""')):
        return not re.search(r"\bSELECT\b|\bCREATE\b", literal)
    try:
        value = ast.literal_eval(literal.lstrip("fF"))
    except (SyntaxError, ValueError):
        value = literal
    return isinstance(value, str) and " " in value and not re.search(r"\bSELECT\b|\bFROM\b", value)


def _blank(match: re.Match[str]) -> str:
    return "\n" * match[0].count("\n")


def _faults(text: str) -> Iterator[str]:
    for number, line in enumerate(_CODE.sub("`", text).split("\n"), 1):
        for rule, instead in _RULES:
            for match in rule.finditer(line):
                yield f"{number}: {match[0]}: {instead}"


def main() -> int:
    """Print every fault of the files that git has; 1 if there is one."""
    listed = subprocess.run(
        ["git", "ls-files", "*.md", "*.py"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    faults = 0
    for path in listed.stdout.splitlines():
        if path.startswith("tests/") or (
            path.endswith(".py") and (not path.startswith(_PRODUCT) or "/tests/" in path)
        ):
            continue
        text = (ROOT / path).read_text("utf-8")
        for fault in faults_of_page(text) if path.endswith(".md") else faults_of_source(text):
            print(f"{path}:{fault}")
            faults += 1
    return int(faults > 0)


if __name__ == "__main__":
    sys.exit(main())
