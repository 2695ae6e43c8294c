"""Samples of devices: how busy they were, by lease and hour, and their sums by project and SKU."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Create both tables."""
    op.create_table(
        "device_samples",
        sa.Column("project", sa.Text(), nullable=False),
        sa.Column("lease", sa.Text(), nullable=False),
        sa.Column("hour", sa.Integer(), nullable=False),
        sa.Column("sampled_ms", sa.BigInteger(), nullable=False),
        sa.Column("known_ms", sa.BigInteger(), nullable=False),
        sa.Column("used_ms", sa.BigInteger(), nullable=False),
        sa.Column("memory_bytes", sa.BigInteger(), nullable=True),
        sa.Column("power_mw", sa.BigInteger(), nullable=True),
        sa.Column("energy_mj", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("project", "lease", "hour"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "device_use",
        sa.Column("project", sa.Text(), nullable=False),
        sa.Column("sku", sa.Text(), nullable=False),
        sa.Column("known_ms", sa.BigInteger(), nullable=False),
        sa.Column("used_ms", sa.BigInteger(), nullable=False),
        sa.Column("energy_mj", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("project", "sku"),
        sqlite_with_rowid=False,
    )
