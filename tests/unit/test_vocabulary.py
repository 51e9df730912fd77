"""The vocabulary check finds sentences of the old kind, and passes plain ones."""

from __future__ import annotations

import pytest

from tests.vocabulary import faults_of_page, faults_of_source

PLANTED = [
    "no trajectory is known to have two turns: there are no figures of turns",
    "without it 2.08 GPU-seconds less",
    "found nothing that attach() would miss",
    "The learner is a training that nobody watches.",
    "A step begins when every rank has begun it.",
    "It is told on one side only.",
    "Rows that cannot be read are left out.",
    "A value that is no number is absent.",
    "This path is no recording.",
    "The chapter has figures of each stage.",
    "What it is at stands in the table.",
    "The process tells its parent what it found.",
    "Who has it deletes it.",
    "Whoever holds the lock is the sidecar.",
    "An error there is of no account.",
    "DuckDB tells of a signal as it likes.",
    "The reader leaves out what is torn.",
    "Trainings of two jobs lie in one folder.",
    "At the beginning there is a header.",
    "Nobody knows which rank was late.",
]


@pytest.mark.parametrize("sentence", PLANTED)
def test_a_sentence_of_the_old_kind_is_found(sentence: str) -> None:
    assert list(faults_of_page(f"A heading\n\n{sentence}\n"))
    assert list(faults_of_source(f'"""A module.\n\n{sentence}\n"""\n'))
    assert list(faults_of_source(f"x = 1  # {sentence}\n"))
    assert list(faults_of_source(f'print(f"{{x}} {sentence}")\n'))


def test_a_variable_without_a_meaning_is_found() -> None:
    assert list(faults_of_source("for one in rows:\n    pass\n")) == [
        "1: one: a noun of what it is"
    ]


def test_plain_sentences_code_and_links_pass() -> None:
    page = (
        "single-turn run; turn metrics omitted\n"
        "OK: everything will be recorded\n"
        "A run starts no later than its first step; the two are told apart by their ids.\n"
        "`begin` is a method.\n```\nnobody tells\n```\n[how](figures.md#chapters)\n"
    )
    assert list(faults_of_page(page)) == []
    assert list(faults_of_source('SQL = "SELECT begin FROM chapters"\nname = "begin"\n')) == []
