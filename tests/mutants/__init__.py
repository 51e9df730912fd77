"""Asks whether a suite of tests is as strong as another one: both look for planted mistakes.

    .venv/bin/python -m tests.mutants --new CHECKOUT ... --old CHECKOUT ... --seed 1 --count 150

draws mutants of product code on lines that the old suite runs, tries `make test` of the new
checkout on each, and the old one on those that survive. Each checkout has its own ``.venv``, made
by ``make``; several checkouts of one suite try as many mutants at a time. Product code that differs
between the two suites is not mutated.

A test that does not run a line cannot see a mistake in it. So of a suite those tests are tried that
run the line, in whatever process: first those that run little else, and until the first failure.
"""
