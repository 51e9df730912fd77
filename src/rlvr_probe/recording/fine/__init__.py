"""Rows of which there can be millions: kept in columns, joined by SQL, at every size."""
