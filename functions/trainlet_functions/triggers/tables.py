"""The tables of what came in, what it matched and what that started. Times are UTC nanoseconds, JSON is text."""

from __future__ import annotations

from sqlalchemy import BigInteger, Boolean, Column, Index, Integer, Table, Text, text

from trainlet_functions.state.schema import metadata

inbox = Table(  # which events came: small rows, so that the look-up stays cheap with millions of them
    "inbox",
    metadata,
    Column("project", Text, primary_key=True),
    Column("id", Text, primary_key=True),
    Column("source", Text, primary_key=True),
    Column("payload_hash", Text, nullable=False),
    Column("event", BigInteger, nullable=False),
    sqlite_with_rowid=False,
)

events = Table(
    "events",
    metadata,
    Column("number", Integer, primary_key=True, autoincrement=True),
    Column("project", Text, nullable=False),
    Column("id", Text, nullable=False),
    Column("source", Text, nullable=False),
    Column("type", Text, nullable=False),
    Column("attributes", Text, nullable=False),
    Column("data", Text, nullable=False),
    Column("is_binary", Boolean, nullable=False),
    Column("received_ns", BigInteger, nullable=False),
)

triggers = Table(
    "triggers",
    metadata,
    Column("project", Text, primary_key=True),
    Column("name", Text, primary_key=True),
    Column("kind", Text, nullable=False),
    Column("pipeline", Text, nullable=False),
    Column("spec", Text, nullable=False),
    Column("digest", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("created_ns", BigInteger, nullable=False),
    Column("updated_ns", BigInteger, nullable=False),
    Column("waiting", Integer, nullable=False),
    Column("due_ns", BigInteger),
    Column("tick_ns", BigInteger),
    Column("poll_ns", BigInteger),
    Column("failures", Integer, nullable=False),
    Column("rest_until_ns", BigInteger),
    Column("started_ns", BigInteger),
    Index("triggers_by_due", "due_ns"),
    Index("triggers_by_tick", "tick_ns"),
    Index("triggers_by_poll", "poll_ns"),
)

polled = Table(  # what a trigger has seen at the place that it looks at
    "polled",
    metadata,
    Column("project", Text, primary_key=True),
    Column("trigger", Text, primary_key=True),
    Column("key", Text, primary_key=True),
    Column("mark", Text, nullable=False),
    sqlite_with_rowid=False,
)

hooks = Table(  # where senders without a token post to; secrets are derived, one that was removed keeps its generation
    "hooks",
    metadata,
    Column("project", Text, primary_key=True),
    Column("adapter", Text, primary_key=True),
    Column("scheme", Text, primary_key=True),
    Column("generation", Integer, nullable=False),
    Column("sources", Text, nullable=False),
    Column("created_ns", BigInteger, nullable=False),
    Column("previous_until_ns", BigInteger),
    Column("removed_ns", BigInteger),
    Column("used_ns", BigInteger),
)

trigger_books = Table(  # grows with every change of a project's triggers: what is compiled from them is kept until then
    "trigger_books",
    metadata,
    Column("project", Text, primary_key=True),
    Column("version", BigInteger, nullable=False),
)

matches = Table(
    "matches",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=True),
    Column("project", Text, nullable=False),
    Column("trigger", Text, nullable=False),
    Column("event", BigInteger, nullable=False),
    Column("replay", Integer, nullable=False),
    Column("state", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("run_id", Text),
    Column("matched_ns", BigInteger, nullable=False),
    Index("matches_once", "event", "trigger", "replay", unique=True),
    Index(
        "matches_held",
        "project",
        "trigger",
        "id",
        sqlite_where=text("state = 'held'"),
        postgresql_where=text("state = 'held'"),
    ),
    Index("matches_by_run", "run_id"),
)

firings = Table(
    "firings",
    metadata,
    Column("number", Integer, primary_key=True, autoincrement=True),
    Column("run_id", Text, nullable=False, unique=True),
    Column("project", Text, nullable=False),
    Column("trigger", Text, nullable=False),
    Column("chain", Text, nullable=False),
    Column("kubeflow", Text),  # how Kubeflow Pipelines starts it; none: the graph is run here
    Column("started_ns", BigInteger, nullable=False),
    Column("ended_ns", BigInteger),
    Column("outcome", Text),
    Column("cost_nano", BigInteger),
    Index("firings_by_trigger", "project", "trigger", "started_ns"),
    Index(
        "firings_open",
        "project",
        "number",
        sqlite_where=text("ended_ns IS NULL"),
        postgresql_where=text("ended_ns IS NULL"),
    ),
)
