"""The first schema: everything that `schema.metadata` holds in version 0.1."""

from __future__ import annotations

from alembic import op

from trainlet_functions.state.schema import metadata

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Create all tables. Later revisions spell out their changes; this one is the definition itself."""
    metadata.create_all(op.get_bind())
