"""The tables of the meter: two append-only logs, the leases folded from them, and what was refused.

`lease_events` holds what workers said, `lease_closings` what the platform decided about attempts that it gave up. The
`leases` are derived: `rebuild` makes them again, equal to the last digit.
"""

from __future__ import annotations

from sqlalchemy import BigInteger, Boolean, Column, Index, Integer, Table, Text

from trainlet_functions.state.schema import metadata

lease_events = Table(
    "lease_events",
    metadata,
    Column("project", Text, primary_key=True),
    Column("id", Text, primary_key=True),
    Column("body", Text, nullable=False),
    Column("received_ns", BigInteger, nullable=False),
)

lease_closings = Table(
    "lease_closings",
    metadata,
    Column("task", Text, primary_key=True),
    Column("epoch", Integer, primary_key=True),
    Column("lease", Text, primary_key=True),  # "": every lease of the attempt that was unknown by then
    Column("elapsed_ns", BigInteger, nullable=False),
    Column("lost_ns", BigInteger),  # what came after it was lost by a fault of the platform
    Column("decided_ns", BigInteger, nullable=False),
)

quarantine = Table(
    "lease_events_refused",
    metadata,
    Column("project", Text, primary_key=True),
    Column("digest", Text, primary_key=True),
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
    Column("part", Integer, nullable=False),
    Column("rate", Text, nullable=False),
    Column("tags", Text, nullable=False),
    Column("anchor_ns", BigInteger, nullable=False),
    Column("heartbeat_ns", BigInteger, nullable=False),
    Column("close_ns", BigInteger),
    Column("until_ns", BigInteger),  # where the next lease of the device (or of one of its parts) begins
    Column("saved_ns", BigInteger, nullable=False),
    Column("lost_ns", BigInteger),
    Column("phases", Text, nullable=False),
    Column("touched_ns", BigInteger, nullable=False),  # when it changed last; what was closed before looks again
    Index("leases_by_run", "project", "run_id"),
    Index("leases_by_task", "task", "epoch"),
    Index("leases_by_device", "device", "anchor_ns", "lease"),
    Index("leases_by_end_on_device", "device", "until_ns"),
    Index("leases_by_time", "project", "anchor_ns"),
    Index("leases_by_change", "touched_ns"),
)

device_samples = Table(  # how busy a leased device was, by UTC hour: beside the bill
    "device_samples",
    metadata,
    Column("project", Text, primary_key=True),
    Column("lease", Text, primary_key=True),
    Column("hour", Integer, primary_key=True),  # since 1970
    Column("sampled_ms", BigInteger, nullable=False),
    Column("known_ms", BigInteger, nullable=False),
    Column("used_ms", BigInteger, nullable=False),
    Column("memory_bytes", BigInteger),
    Column("power_mw", BigInteger),
    Column("energy_mj", BigInteger),
    sqlite_with_rowid=False,
)

device_use = Table(  # their sums
    "device_use",
    metadata,
    Column("project", Text, primary_key=True),
    Column("sku", Text, primary_key=True),
    Column("known_ms", BigInteger, nullable=False),
    Column("used_ms", BigInteger, nullable=False),
    Column("energy_mj", BigInteger, nullable=False),
    sqlite_with_rowid=False,
)
