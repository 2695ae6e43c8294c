"""The tables of money: price versions, periods with the rows that they were closed with, exports, budgets.

Everything but `budget_spend` is append-only or moves one way; `budget_spend` is derived from the ledger.
"""

from __future__ import annotations

from sqlalchemy import BigInteger, Boolean, Column, Index, Integer, Table, Text

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

periods = Table(
    "billing_periods",
    metadata,
    Column("period", Text, primary_key=True),
    Column("status", Text, nullable=False),
    Column("currency", Text, nullable=False),
    Column("closing_ns", BigInteger),
    Column("closed_ns", BigInteger),
    Column("closed_by", Text),
    Column("line_count", BigInteger),
    Column("digest", Text),
)

closed_lines = Table(
    "billing_lines",
    metadata,
    Column("period", Text, primary_key=True),
    Column("id", Text, primary_key=True),
    Column("position", BigInteger, nullable=False),
    Column("project", Text, nullable=False),
    Column("lease", Text, nullable=False),
    Column("charge_period", Text, nullable=False),  # the month that the usage was in; another one in corrections
    Column("body", Text, nullable=False),
    Index("billing_lines_in_order", "period", "position"),
    Index("billing_lines_by_lease", "charge_period", "project", "lease"),
)

exports = Table(
    "billing_exports",
    metadata,
    Column("id", Text, primary_key=True),
    Column("period", Text, nullable=False),
    Column("project", Text),
    Column("status", Text, nullable=False),
    Column("format", Text, nullable=False),
    Column("key", Text, nullable=False),
    Column("digest", Text, nullable=False),
    Column("created_ns", BigInteger, nullable=False),
    Index("billing_exports_by_period", "period", "created_ns"),
)

budgets = Table(
    "budgets",
    metadata,
    Column("project", Text, primary_key=True),
    Column("name", Text, primary_key=True),
    Column("unit", Text, nullable=False),  # money, in nano-units, or gpu_seconds
    Column("amount", BigInteger, nullable=False),
    Column("window", Text, nullable=False),
    Column("sku", Text),
    Column("action", Text, nullable=False),
    Column("strict", Boolean, nullable=False),
    Column("warn_percent", Integer, nullable=False),
    Column("changed_ns", BigInteger, nullable=False),
    Column("warned", Text, nullable=False),  # the window that was warned of
)

budget_spend = Table(
    "budget_spend",
    metadata,
    Column("project", Text, primary_key=True),
    Column("lease", Text, primary_key=True),
    Column("day", BigInteger, primary_key=True),  # days since 1970, UTC
    Column("sku", Text, nullable=False),
    Column("seconds", BigInteger, nullable=False),
    Column("cost_nano", BigInteger, nullable=False),
    Index("budget_spend_by_day", "project", "day"),
)
