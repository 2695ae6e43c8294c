"""The table of money: price versions, append-only."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Table, Text

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
