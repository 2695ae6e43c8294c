"""The tables of the meter: the event log, the leases folded from it, and what was refused."""

from __future__ import annotations

from sqlalchemy import BigInteger, Boolean, Column, Index, Integer, Table, Text

from trainlet_functions.state.schema import metadata

lease_events = Table(
    "lease_events",
    metadata,
    Column("project", Text, primary_key=True),
    Column("id", Text, primary_key=True),
    Column("lease", Text, nullable=False),
    Column("payload_hash", Text, nullable=False),
    Column("body", Text, nullable=False),
    Column("received_ns", BigInteger, nullable=False),
)

quarantine = Table(
    "lease_events_refused",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=True),
    Column("project", Text, nullable=False),
    Column("event_id", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("body", Text, nullable=False),
    Column("received_ns", BigInteger, nullable=False),
)

leases = Table(
    "leases",
    metadata,
    Column("project", Text, primary_key=True),
    Column("lease", Text, primary_key=True),
    Column("run_id", Text, nullable=False),
    Column("task", Text, nullable=False),
    Column("epoch", Integer, nullable=False),
    Column("function", Text, nullable=False),
    Column("device", Text, nullable=False),
    Column("sku", Text, nullable=False),
    Column("virtual", Boolean, nullable=False),
    Column("share", Integer, nullable=False),
    Column("anchor_ns", BigInteger, nullable=False),
    Column("heartbeat_ns", BigInteger, nullable=False),
    Column("close_ns", BigInteger),
    Column("cap_ns", BigInteger),
    Column("phases", Text, nullable=False),
    Column("stale", Boolean, nullable=False),
    Index("leases_by_run", "project", "run_id"),
    Index("leases_by_task", "task", "epoch"),
    Index("leases_by_device", "device", "anchor_ns"),
)
