"""The tables of money, append-only: price versions, and what closed periods hold.

A period and its invoices are written once; `bill_rows` are never changed or taken away, so the digests stay true.
"""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Index, Integer, Table, Text

from trainlet_functions.state.schema import metadata

price_versions = Table(
    "price_versions",
    metadata,
    Column("version", Text, primary_key=True),
    Column("from_s", BigInteger, nullable=False, unique=True),
    Column("body", Text, nullable=False),
    Column("applied_ns", BigInteger, nullable=False),
    Column("applied_by", Text, nullable=False),
)

bill_periods = Table(
    "bill_periods",
    metadata,
    Column("period", Text, primary_key=True),
    Column("currency", Text, nullable=False),
    Column("closing_ns", BigInteger, nullable=False),
    Column("closing_by", Text, nullable=False),
    Column("closed_ns", BigInteger),  # None: closing
    Column("digest", Text),
)

bill_invoices = Table(
    "bill_invoices",
    metadata,
    Column("period", Text, primary_key=True),
    Column("project", Text, primary_key=True),
    Column("body", Text, nullable=False),
    Column("frozen_ns", BigInteger, nullable=False),
)

bill_rows = Table(
    "bill_rows",
    metadata,
    Column("project", Text, primary_key=True),
    Column("id", Text, primary_key=True),
    Column("period", Text, nullable=False),
    Column("position", Integer, nullable=False),
    Column("lease", Text, nullable=False),
    Column("corrects", Text, nullable=False),
    Column("body", Text, nullable=False),
    Index("bill_rows_by_period", "period", "project", "position"),
    Index("bill_rows_by_lease", "project", "lease"),
)
