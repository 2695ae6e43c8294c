"""Alembic's entry: runs on the connection that `Database.migrate` hands over."""

from __future__ import annotations

from alembic import context

from trainlet_functions.billing import tables as _billing_tables  # noqa: F401 - its tables join the metadata
from trainlet_functions.metering import tables as _metering_tables  # noqa: F401 - its tables join the metadata
from trainlet_functions.state.schema import metadata
from trainlet_functions.triggers import tables as _trigger_tables  # noqa: F401 - its tables join the metadata

connection = context.config.attributes["connection"]
context.configure(connection=connection, target_metadata=metadata)
context.run_migrations()
