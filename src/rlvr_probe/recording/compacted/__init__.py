"""Finished segments as Parquet: fine rows in columns, every other line as it was.

What was written comes out again byte by byte, so that every reader of journals takes either form;
one of whole recordings takes the columns as they are.
"""
