"""The tables. Times are UTC nanoseconds, JSON is text, and every row belongs to a project directly or by its task."""

from __future__ import annotations

from sqlalchemy import BigInteger, Boolean, Column, Double, Index, Integer, MetaData, Table, Text, text

metadata = MetaData()

functions = Table(
    "functions",
    metadata,
    Column("project", Text, primary_key=True),
    Column("name", Text, primary_key=True),
    Column("digest", Text, primary_key=True),
    Column("spec", Text, nullable=False),
    Column("created_ns", BigInteger, nullable=False),
)

dispatchers = Table(
    "dispatchers",
    metadata,
    Column("project", Text, primary_key=True),
    Column("id", Text, primary_key=True),
    Column("expires_ns", BigInteger, nullable=False),
)

runs = Table(
    "runs",
    metadata,
    Column("id", Text, primary_key=True),
    Column("project", Text, nullable=False),
    Column("pipeline", Text, nullable=False),
    Column("graph", Text),
    Column("params", Text, nullable=False),
    Column("body_hash", Text, nullable=False),
    Column("automatic", Boolean, nullable=False),
    Column("state", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("created_ns", BigInteger, nullable=False),
    Column("finished_ns", BigInteger),
    Column("outputs", Text, nullable=False),
    Column("error", Text),
    Column("dispatcher", Text),
    Column("budget_nano", BigInteger),
    Column("labels", Text, nullable=False),
    Column("change_seq", BigInteger, nullable=False),
    Column("log_seq", BigInteger, nullable=False),
    Column("archive_due_ns", BigInteger),
    Index("runs_by_time", "project", "created_ns", "id"),
    Index("runs_to_archive", "archive_due_ns"),
    Index("runs_by_dispatcher", "project", "dispatcher"),
)

tasks = Table(
    "tasks",
    metadata,
    Column("key", Text, primary_key=True),
    Column("project", Text, nullable=False),
    Column("run_id", Text, nullable=False),
    Column("node", Text, nullable=False),
    Column("function", Text, nullable=False),
    Column("digest", Text, nullable=False),
    Column("args", Text, nullable=False),
    Column("labels", Text, nullable=False),
    Column("body_hash", Text, nullable=False),
    Column("dispatcher", Text),
    Column("state", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("epoch", Integer, nullable=False),
    Column("version", BigInteger, nullable=False),
    Column("created_ns", BigInteger, nullable=False),
    Column("updated_ns", BigInteger, nullable=False),
    Column("finished_ns", BigInteger),
    Column("output", Text),
    Column("error", Text),
    Column("progress", Text),
    Column("metrics", Text, nullable=False),
    Column("checkpoints", Text, nullable=False),
    Column("failures", Integer, nullable=False),
    Column("losses", Integer, nullable=False),
    Column("not_before_ns", BigInteger, nullable=False),
    Column("announced_ns", BigInteger, nullable=False),
    Column("announcements", Integer, nullable=False),
    Column("deadline_ns", BigInteger),
    Column("stop_code", Text),
    Column("stop_reason", Text),
    Column("stop_by_ns", BigInteger),
    Column("gpu", Boolean, nullable=False),
    Column("lane", Text, nullable=False),
    Index("tasks_by_run", "run_id", "version"),
    Index("tasks_by_run_state", "run_id", "state"),
    Index("tasks_by_lane", "state", "lane", "created_ns", "key"),
    Index("tasks_by_function", "project", "function", "state", "created_ns", "key"),
)

series = Table(
    "series",
    metadata,
    Column("task", Text, primary_key=True),
    Column("name", Text, primary_key=True),
    Column("seen", BigInteger, nullable=False),
    Column("stride", BigInteger, nullable=False),
    Column("last_ns", BigInteger, nullable=False),
    Column("last", Double, nullable=False),
)

points = Table(
    "points",
    metadata,
    Column("task", Text, primary_key=True),
    Column("name", Text, primary_key=True),
    Column("number", BigInteger, primary_key=True),
    Column("at_ns", BigInteger, nullable=False),
    Column("value", Double, nullable=False),
)

attempts = Table(
    "attempts",
    metadata,
    Column("task", Text, primary_key=True),
    Column("epoch", Integer, primary_key=True),
    Column("state", Text, nullable=False),
    Column("outcome", Text),
    Column("worker", Text, nullable=False),
    Column("nonce", Text, nullable=False),
    Column("token_hash", Text, nullable=False),
    Column("devices", Text, nullable=False),
    Column("claimed_ns", BigInteger, nullable=False),
    Column("started_ns", BigInteger),
    Column("finished_ns", BigInteger),
    Column("lease_until_ns", BigInteger, nullable=False),
    Column("resumed_from_step", BigInteger),
    Column("reason", Text, nullable=False),
    Column("error", Text),
    Column("told_to_stop", Boolean, nullable=False),
    Index("attempts_by_lease", "state", "lease_until_ns"),
    Index("attempts_by_worker", "worker", "state"),
)

devices = Table(
    "devices",
    metadata,
    Column("uuid", Text, primary_key=True),
    Column("position", Integer, nullable=False),
    Column("sku", Text),
    Column("info", Text, nullable=False),
    Column("task", Text),
    Column("epoch", Integer),
    Column("held_as", Text),
)

timeline = Table(
    "timeline",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=True),
    Column("task", Text, nullable=False),
    Column("epoch", Integer, nullable=False),
    Column("at_ns", BigInteger, nullable=False),
    Column("state", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("actor", Text, nullable=False),
    Index("timeline_by_task", "task", "id"),
)

outbox = Table(
    "outbox",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=True),
    Column("event_id", Text, nullable=False, unique=True),
    Column("type", Text, nullable=False),
    Column("project", Text, nullable=False),
    Column("task", Text, nullable=False),
    Column("epoch", Integer, nullable=False),
    Column("function", Text),
    Column("attributes", Text),
    Column("data", Text, nullable=False),
    Column("created_ns", BigInteger, nullable=False),
    Column("due_ns", BigInteger),
    Column("tries", Integer, nullable=False),
    Column("delivered_ns", BigInteger),
    Column("dead_ns", BigInteger),
    Column("last_error", Text),
    Index("outbox_by_due", "due_ns"),
    Index(
        "outbox_wake_ups",
        "due_ns",
        sqlite_where=text("function IS NOT NULL"),
        postgresql_where=text("function IS NOT NULL"),
    ),
    Index(
        "outbox_news",
        "due_ns",
        "id",
        sqlite_where=text("function IS NULL"),
        postgresql_where=text("function IS NULL"),
    ),
    Index("outbox_by_task", "task", "epoch"),
)

sinks = Table(  # where a project has events sent to; one that was removed keeps its generation
    "sinks",
    metadata,
    Column("project", Text, primary_key=True),
    Column("name", Text, primary_key=True),
    Column("url", Text, nullable=False),
    Column("types", Text, nullable=False),
    Column("generation", Integer, nullable=False),
    Column("previous_until_ns", BigInteger),
    Column("state", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("created_ns", BigInteger, nullable=False),
    Column("failures", Integer, nullable=False),
    Column("rest_until_ns", BigInteger, nullable=False),
    Column("delivered_ns", BigInteger),
    Column("removed_ns", BigInteger),
)

letters = Table(  # an event of the outbox on its way to a sink
    "letters",
    metadata,
    Column("number", Integer, primary_key=True, autoincrement=True),
    Column("project", Text, nullable=False),
    Column("sink", Text, nullable=False),
    Column("event", BigInteger, nullable=False),
    Column("created_ns", BigInteger, nullable=False),
    Column("due_ns", BigInteger),
    Column("tries", Integer, nullable=False),
    Column("delivered_ns", BigInteger),
    Column("dead_ns", BigInteger),
    Column("reason", Text, nullable=False),
    Index("letters_once", "event", "project", "sink", unique=True),
    Index(
        "letters_waiting",
        "project",
        "sink",
        "number",
        sqlite_where=text("due_ns IS NOT NULL"),
        postgresql_where=text("due_ns IS NOT NULL"),
    ),
    Index(
        "letters_dead",
        "project",
        "sink",
        "number",
        sqlite_where=text("dead_ns IS NOT NULL"),
        postgresql_where=text("dead_ns IS NOT NULL"),
    ),
)

logs = Table(
    "logs",
    metadata,
    Column("run_id", Text, primary_key=True),
    Column("seq_end", BigInteger, primary_key=True),
    Column("task", Text, nullable=False),
    Column("node", Text, nullable=False),
    Column("epoch", Integer, nullable=False),
    Column("rank", Integer, nullable=False),
    Column("count", Integer, nullable=False),
    Column("lines", Text, nullable=False),
)

log_offsets = Table(
    "log_offsets",
    metadata,
    Column("task", Text, primary_key=True),
    Column("epoch", Integer, primary_key=True),
    Column("rank", Integer, primary_key=True),
    Column("next_offset", BigInteger, nullable=False),
)

log_archives = Table(
    "log_archives",
    metadata,
    Column("run_id", Text, primary_key=True),
    Column("seq_end", BigInteger, primary_key=True),
    Column("key", Text, nullable=False),
)

tokens = Table(
    "tokens",
    metadata,
    Column("hash", Text, primary_key=True),
    Column("project", Text, nullable=False),
    Column("scopes", Text, nullable=False),
    Column("label", Text, nullable=False),
    Column("created_ns", BigInteger, nullable=False),
    Column("expires_ns", BigInteger),
)

workers = Table(
    "workers",
    metadata,
    Column("project", Text, primary_key=True),
    Column("id", Text, primary_key=True),
    Column("function", Text, nullable=False),
    Column("url", Text),
    Column("busy", Boolean, nullable=False),
    Column("silent", Boolean, nullable=False),
    Column("seen_ns", BigInteger, nullable=False),
    Column("revision", Text),  # of the Service, for a worker in a pod
    Index("workers_by_function", "project", "function", "busy"),
)

cold_starts = Table(  # the last one of each function: its pod may be gone when somebody asks
    "cold_starts",
    metadata,
    Column("project", Text, primary_key=True),
    Column("function", Text, primary_key=True),
    Column("phases", Text, nullable=False),
)

leaders = Table(
    "leaders",
    metadata,
    Column("name", Text, primary_key=True),
    Column("holder", Text, nullable=False),
    Column("until_ns", BigInteger, nullable=False),
)

spending = Table(  # what was used, by UTC day; kept with the leases, in the transaction that changes them
    "spending",
    metadata,
    Column("project", Text, primary_key=True),
    Column("run_id", Text, primary_key=True),  # "": all runs of the project
    Column("day", Integer, primary_key=True),  # days since 1970
    Column("sku", Text, primary_key=True),
    Column("parts", BigInteger, nullable=False),  # device-seconds in parts of 5040
    Column("cost_nano", BigInteger, nullable=False),
    Index("spending_by_day", "run_id", "day"),
    sqlite_with_rowid=False,
)

lease_spending = Table(  # which part of it each lease is
    "lease_spending",
    metadata,
    Column("project", Text, primary_key=True),
    Column("lease", Text, primary_key=True),
    Column("day", Integer, primary_key=True),
    Column("parts", BigInteger, nullable=False),
    Column("cost_nano", BigInteger, nullable=False),
    sqlite_with_rowid=False,
)

budgets = Table(
    "budgets",
    metadata,
    Column("name", Text, primary_key=True),
    Column("covers", Text, nullable=False),
    Column("terms", Text, nullable=False),
    Column("updated_ns", BigInteger, nullable=False),
    Column("set_by", Text, nullable=False),
)

budget_notes = Table(  # which percentages of a budget were told of, once in each of its periods
    "budget_notes",
    metadata,
    Column("budget", Text, primary_key=True),
    Column("since_day", Integer, primary_key=True),
    Column("percent", Integer, primary_key=True),
    Column("at_ns", BigInteger, nullable=False),
)

holds = Table(  # what a strict budget has set aside for an attempt: `seconds` of its time, counted from its claim
    "holds",
    metadata,
    Column("task", Text, primary_key=True),
    Column("epoch", Integer, primary_key=True),
    Column("budget", Text, primary_key=True),
    Column("seconds", BigInteger, nullable=False),
    Column("amount", BigInteger, nullable=False),
)
