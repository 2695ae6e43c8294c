"""Exports: the rows of the billing ledger in the formats that others read, and the check that nothing was lost on the way.

Rows come in as the API sends them, and files go out into a store. This room must not know databases: whoever may read
the rows can export them, from a laptop too. pyarrow (the extra `billing`) is imported where files are made or read.
"""
