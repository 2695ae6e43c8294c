"""The first schema, frozen: what comes later is a revision of its own that spells out its changes."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Create all tables."""
    op.create_table(
        "attempts",
        sa.Column("task", sa.Text(), nullable=False),
        sa.Column("epoch", sa.Integer(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("outcome", sa.Text(), nullable=True),
        sa.Column("worker", sa.Text(), nullable=False),
        sa.Column("nonce", sa.Text(), nullable=False),
        sa.Column("token_hash", sa.Text(), nullable=False),
        sa.Column("devices", sa.Text(), nullable=False),
        sa.Column("claimed_ns", sa.BigInteger(), nullable=False),
        sa.Column("started_ns", sa.BigInteger(), nullable=True),
        sa.Column("finished_ns", sa.BigInteger(), nullable=True),
        sa.Column("lease_until_ns", sa.BigInteger(), nullable=False),
        sa.Column("resumed_from_step", sa.BigInteger(), nullable=True),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("told_to_stop", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("task", "epoch"),
    )
    op.create_index("attempts_by_lease", "attempts", ["state", "lease_until_ns"], unique=False)
    op.create_index("attempts_by_worker", "attempts", ["worker", "state"], unique=False)
    op.create_table(
        "bill_invoices",
        sa.Column("period", sa.Text(), nullable=False),
        sa.Column("project", sa.Text(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("frozen_ns", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("period", "project"),
    )
    op.create_table(
        "bill_periods",
        sa.Column("period", sa.Text(), nullable=False),
        sa.Column("currency", sa.Text(), nullable=False),
        sa.Column("closing_ns", sa.BigInteger(), nullable=False),
        sa.Column("closing_by", sa.Text(), nullable=False),
        sa.Column("closed_ns", sa.BigInteger(), nullable=True),
        sa.Column("digest", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("period"),
    )
    op.create_table(
        "bill_rows",
        sa.Column("project", sa.Text(), nullable=False),
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("period", sa.Text(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("lease", sa.Text(), nullable=False),
        sa.Column("corrects", sa.Text(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("project", "id"),
    )
    op.create_index("bill_rows_by_lease", "bill_rows", ["project", "lease"], unique=False)
    op.create_index("bill_rows_by_period", "bill_rows", ["period", "project", "position"], unique=False)
    op.create_table(
        "budget_notes",
        sa.Column("budget", sa.Text(), nullable=False),
        sa.Column("since_day", sa.Integer(), nullable=False),
        sa.Column("percent", sa.Integer(), nullable=False),
        sa.Column("at_ns", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("budget", "since_day", "percent"),
    )
    op.create_table(
        "budgets",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("covers", sa.Text(), nullable=False),
        sa.Column("terms", sa.Text(), nullable=False),
        sa.Column("updated_ns", sa.BigInteger(), nullable=False),
        sa.Column("set_by", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("name"),
    )
    op.create_table(
        "cold_starts",
        sa.Column("project", sa.Text(), nullable=False),
        sa.Column("function", sa.Text(), nullable=False),
        sa.Column("phases", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("project", "function"),
    )
    op.create_table(
        "devices",
        sa.Column("uuid", sa.Text(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("sku", sa.Text(), nullable=True),
        sa.Column("info", sa.Text(), nullable=False),
        sa.Column("task", sa.Text(), nullable=True),
        sa.Column("epoch", sa.Integer(), nullable=True),
        sa.Column("held_as", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("uuid"),
    )
    op.create_table(
        "dispatchers",
        sa.Column("project", sa.Text(), nullable=False),
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("expires_ns", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("project", "id"),
    )
    op.create_table(
        "events",
        sa.Column("number", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("project", sa.Text(), nullable=False),
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("type", sa.Text(), nullable=False),
        sa.Column("attributes", sa.Text(), nullable=False),
        sa.Column("data", sa.Text(), nullable=False),
        sa.Column("is_binary", sa.Boolean(), nullable=False),
        sa.Column("received_ns", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("number"),
    )
    op.create_table(
        "firings",
        sa.Column("number", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("project", sa.Text(), nullable=False),
        sa.Column("trigger", sa.Text(), nullable=False),
        sa.Column("chain", sa.Text(), nullable=False),
        sa.Column("kubeflow", sa.Text(), nullable=True),
        sa.Column("started_ns", sa.BigInteger(), nullable=False),
        sa.Column("ended_ns", sa.BigInteger(), nullable=True),
        sa.Column("outcome", sa.Text(), nullable=True),
        sa.Column("cost_nano", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("number"),
        sa.UniqueConstraint("run_id"),
    )
    op.create_index("firings_by_trigger", "firings", ["project", "trigger", "started_ns"], unique=False)
    op.create_index(
        "firings_open",
        "firings",
        ["project", "number"],
        unique=False,
        sqlite_where=sa.text("ended_ns IS NULL"),
        postgresql_where=sa.text("ended_ns IS NULL"),
    )
    op.create_table(
        "functions",
        sa.Column("project", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("spec", sa.Text(), nullable=False),
        sa.Column("created_ns", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("project", "name", "digest"),
    )
    op.create_table(
        "holds",
        sa.Column("task", sa.Text(), nullable=False),
        sa.Column("epoch", sa.Integer(), nullable=False),
        sa.Column("budget", sa.Text(), nullable=False),
        sa.Column("seconds", sa.BigInteger(), nullable=False),
        sa.Column("amount", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("task", "epoch", "budget"),
    )
    op.create_table(
        "hooks",
        sa.Column("project", sa.Text(), nullable=False),
        sa.Column("adapter", sa.Text(), nullable=False),
        sa.Column("scheme", sa.Text(), nullable=False),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("sources", sa.Text(), nullable=False),
        sa.Column("created_ns", sa.BigInteger(), nullable=False),
        sa.Column("previous_until_ns", sa.BigInteger(), nullable=True),
        sa.Column("removed_ns", sa.BigInteger(), nullable=True),
        sa.Column("used_ns", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("project", "adapter", "scheme"),
    )
    op.create_table(
        "inbox",
        sa.Column("project", sa.Text(), nullable=False),
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("payload_hash", sa.Text(), nullable=False),
        sa.Column("event", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("project", "id", "source"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "leaders",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("holder", sa.Text(), nullable=False),
        sa.Column("until_ns", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("name"),
    )
    op.create_table(
        "lease_closings",
        sa.Column("task", sa.Text(), nullable=False),
        sa.Column("epoch", sa.Integer(), nullable=False),
        sa.Column("lease", sa.Text(), nullable=False),
        sa.Column("elapsed_ns", sa.BigInteger(), nullable=False),
        sa.Column("lost_ns", sa.BigInteger(), nullable=True),
        sa.Column("decided_ns", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("task", "epoch", "lease"),
    )
    op.create_table(
        "lease_events",
        sa.Column("project", sa.Text(), nullable=False),
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("received_ns", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("project", "id"),
    )
    op.create_table(
        "lease_events_refused",
        sa.Column("project", sa.Text(), nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("event_id", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("received_ns", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("project", "digest"),
    )
    op.create_table(
        "lease_spending",
        sa.Column("project", sa.Text(), nullable=False),
        sa.Column("lease", sa.Text(), nullable=False),
        sa.Column("day", sa.Integer(), nullable=False),
        sa.Column("parts", sa.BigInteger(), nullable=False),
        sa.Column("cost_nano", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("project", "lease", "day"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "leases",
        sa.Column("project", sa.Text(), nullable=False),
        sa.Column("lease", sa.Text(), nullable=False),
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("task", sa.Text(), nullable=False),
        sa.Column("epoch", sa.Integer(), nullable=False),
        sa.Column("function", sa.Text(), nullable=False),
        sa.Column("device", sa.Text(), nullable=False),
        sa.Column("sku", sa.Text(), nullable=False),
        sa.Column("virtual", sa.Boolean(), nullable=False),
        sa.Column("share", sa.Integer(), nullable=False),
        sa.Column("part", sa.Integer(), nullable=False),
        sa.Column("rate", sa.Text(), nullable=False),
        sa.Column("tags", sa.Text(), nullable=False),
        sa.Column("anchor_ns", sa.BigInteger(), nullable=False),
        sa.Column("heartbeat_ns", sa.BigInteger(), nullable=False),
        sa.Column("close_ns", sa.BigInteger(), nullable=True),
        sa.Column("until_ns", sa.BigInteger(), nullable=True),
        sa.Column("saved_ns", sa.BigInteger(), nullable=False),
        sa.Column("lost_ns", sa.BigInteger(), nullable=True),
        sa.Column("phases", sa.Text(), nullable=False),
        sa.Column("touched_ns", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("project", "lease"),
    )
    op.create_index("leases_by_change", "leases", ["touched_ns"], unique=False)
    op.create_index("leases_by_device", "leases", ["device", "anchor_ns", "lease"], unique=False)
    op.create_index("leases_by_end_on_device", "leases", ["device", "until_ns"], unique=False)
    op.create_index("leases_by_run", "leases", ["project", "run_id"], unique=False)
    op.create_index("leases_by_task", "leases", ["task", "epoch"], unique=False)
    op.create_index("leases_by_time", "leases", ["project", "anchor_ns"], unique=False)
    op.create_table(
        "letters",
        sa.Column("number", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("project", sa.Text(), nullable=False),
        sa.Column("sink", sa.Text(), nullable=False),
        sa.Column("event", sa.BigInteger(), nullable=False),
        sa.Column("created_ns", sa.BigInteger(), nullable=False),
        sa.Column("due_ns", sa.BigInteger(), nullable=True),
        sa.Column("tries", sa.Integer(), nullable=False),
        sa.Column("delivered_ns", sa.BigInteger(), nullable=True),
        sa.Column("dead_ns", sa.BigInteger(), nullable=True),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("number"),
    )
    op.create_index(
        "letters_dead",
        "letters",
        ["project", "sink", "number"],
        unique=False,
        sqlite_where=sa.text("dead_ns IS NOT NULL"),
        postgresql_where=sa.text("dead_ns IS NOT NULL"),
    )
    op.create_index("letters_once", "letters", ["event", "project", "sink"], unique=True)
    op.create_index(
        "letters_waiting",
        "letters",
        ["project", "sink", "number"],
        unique=False,
        sqlite_where=sa.text("due_ns IS NOT NULL"),
        postgresql_where=sa.text("due_ns IS NOT NULL"),
    )
    op.create_table(
        "log_archives",
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("seq_end", sa.BigInteger(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("run_id", "seq_end"),
    )
    op.create_table(
        "log_offsets",
        sa.Column("task", sa.Text(), nullable=False),
        sa.Column("epoch", sa.Integer(), nullable=False),
        sa.Column("rank", sa.Integer(), nullable=False),
        sa.Column("next_offset", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("task", "epoch", "rank"),
    )
    op.create_table(
        "logs",
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("seq_end", sa.BigInteger(), nullable=False),
        sa.Column("task", sa.Text(), nullable=False),
        sa.Column("node", sa.Text(), nullable=False),
        sa.Column("epoch", sa.Integer(), nullable=False),
        sa.Column("rank", sa.Integer(), nullable=False),
        sa.Column("count", sa.Integer(), nullable=False),
        sa.Column("lines", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("run_id", "seq_end"),
    )
    op.create_table(
        "matches",
        sa.Column("id", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("project", sa.Text(), nullable=False),
        sa.Column("trigger", sa.Text(), nullable=False),
        sa.Column("event", sa.BigInteger(), nullable=False),
        sa.Column("replay", sa.Integer(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("run_id", sa.Text(), nullable=True),
        sa.Column("matched_ns", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("matches_by_run", "matches", ["run_id"], unique=False)
    op.create_index(
        "matches_held",
        "matches",
        ["project", "trigger", "id"],
        unique=False,
        sqlite_where=sa.text("state = 'held'"),
        postgresql_where=sa.text("state = 'held'"),
    )
    op.create_index("matches_once", "matches", ["event", "trigger", "replay"], unique=True)
    op.create_table(
        "outbox",
        sa.Column("id", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("event_id", sa.Text(), nullable=False),
        sa.Column("type", sa.Text(), nullable=False),
        sa.Column("project", sa.Text(), nullable=False),
        sa.Column("task", sa.Text(), nullable=False),
        sa.Column("epoch", sa.Integer(), nullable=False),
        sa.Column("function", sa.Text(), nullable=True),
        sa.Column("attributes", sa.Text(), nullable=True),
        sa.Column("data", sa.Text(), nullable=False),
        sa.Column("created_ns", sa.BigInteger(), nullable=False),
        sa.Column("due_ns", sa.BigInteger(), nullable=True),
        sa.Column("tries", sa.Integer(), nullable=False),
        sa.Column("delivered_ns", sa.BigInteger(), nullable=True),
        sa.Column("dead_ns", sa.BigInteger(), nullable=True),
        sa.Column("last_error", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("event_id"),
    )
    op.create_index("outbox_by_due", "outbox", ["due_ns"], unique=False)
    op.create_index("outbox_by_task", "outbox", ["task", "epoch"], unique=False)
    op.create_index(
        "outbox_news",
        "outbox",
        ["due_ns", "id"],
        unique=False,
        sqlite_where=sa.text("function IS NULL"),
        postgresql_where=sa.text("function IS NULL"),
    )
    op.create_index(
        "outbox_wake_ups",
        "outbox",
        ["due_ns"],
        unique=False,
        sqlite_where=sa.text("function IS NOT NULL"),
        postgresql_where=sa.text("function IS NOT NULL"),
    )
    op.create_table(
        "points",
        sa.Column("task", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("number", sa.BigInteger(), nullable=False),
        sa.Column("at_ns", sa.BigInteger(), nullable=False),
        sa.Column("value", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("task", "name", "number"),
    )
    op.create_table(
        "polled",
        sa.Column("project", sa.Text(), nullable=False),
        sa.Column("trigger", sa.Text(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("mark", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("project", "trigger", "key"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "price_versions",
        sa.Column("version", sa.Text(), nullable=False),
        sa.Column("from_s", sa.BigInteger(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("applied_ns", sa.BigInteger(), nullable=False),
        sa.Column("applied_by", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("version"),
        sa.UniqueConstraint("from_s"),
    )
    op.create_table(
        "runs",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("project", sa.Text(), nullable=False),
        sa.Column("pipeline", sa.Text(), nullable=False),
        sa.Column("graph", sa.Text(), nullable=True),
        sa.Column("params", sa.Text(), nullable=False),
        sa.Column("body_hash", sa.Text(), nullable=False),
        sa.Column("automatic", sa.Boolean(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("created_ns", sa.BigInteger(), nullable=False),
        sa.Column("finished_ns", sa.BigInteger(), nullable=True),
        sa.Column("outputs", sa.Text(), nullable=False),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("dispatcher", sa.Text(), nullable=True),
        sa.Column("budget_nano", sa.BigInteger(), nullable=True),
        sa.Column("labels", sa.Text(), nullable=False),
        sa.Column("change_seq", sa.BigInteger(), nullable=False),
        sa.Column("log_seq", sa.BigInteger(), nullable=False),
        sa.Column("archive_due_ns", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("runs_by_dispatcher", "runs", ["project", "dispatcher"], unique=False)
    op.create_index("runs_by_time", "runs", ["project", "created_ns", "id"], unique=False)
    op.create_index("runs_to_archive", "runs", ["archive_due_ns"], unique=False)
    op.create_table(
        "series",
        sa.Column("task", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("seen", sa.BigInteger(), nullable=False),
        sa.Column("stride", sa.BigInteger(), nullable=False),
        sa.Column("last_ns", sa.BigInteger(), nullable=False),
        sa.Column("last", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("task", "name"),
    )
    op.create_table(
        "sinks",
        sa.Column("project", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("url", sa.Text(), nullable=False),
        sa.Column("types", sa.Text(), nullable=False),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("previous_until_ns", sa.BigInteger(), nullable=True),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("created_ns", sa.BigInteger(), nullable=False),
        sa.Column("failures", sa.Integer(), nullable=False),
        sa.Column("rest_until_ns", sa.BigInteger(), nullable=False),
        sa.Column("delivered_ns", sa.BigInteger(), nullable=True),
        sa.Column("removed_ns", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("project", "name"),
    )
    op.create_table(
        "spending",
        sa.Column("project", sa.Text(), nullable=False),
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("day", sa.Integer(), nullable=False),
        sa.Column("sku", sa.Text(), nullable=False),
        sa.Column("parts", sa.BigInteger(), nullable=False),
        sa.Column("cost_nano", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("project", "run_id", "day", "sku"),
        sqlite_with_rowid=False,
    )
    op.create_index("spending_by_day", "spending", ["run_id", "day"], unique=False)
    op.create_table(
        "tasks",
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("project", sa.Text(), nullable=False),
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("node", sa.Text(), nullable=False),
        sa.Column("function", sa.Text(), nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("args", sa.Text(), nullable=False),
        sa.Column("labels", sa.Text(), nullable=False),
        sa.Column("body_hash", sa.Text(), nullable=False),
        sa.Column("dispatcher", sa.Text(), nullable=True),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("epoch", sa.Integer(), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("created_ns", sa.BigInteger(), nullable=False),
        sa.Column("updated_ns", sa.BigInteger(), nullable=False),
        sa.Column("finished_ns", sa.BigInteger(), nullable=True),
        sa.Column("output", sa.Text(), nullable=True),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("progress", sa.Text(), nullable=True),
        sa.Column("metrics", sa.Text(), nullable=False),
        sa.Column("checkpoints", sa.Text(), nullable=False),
        sa.Column("failures", sa.Integer(), nullable=False),
        sa.Column("losses", sa.Integer(), nullable=False),
        sa.Column("not_before_ns", sa.BigInteger(), nullable=False),
        sa.Column("announced_ns", sa.BigInteger(), nullable=False),
        sa.Column("announcements", sa.Integer(), nullable=False),
        sa.Column("deadline_ns", sa.BigInteger(), nullable=True),
        sa.Column("stop_code", sa.Text(), nullable=True),
        sa.Column("stop_reason", sa.Text(), nullable=True),
        sa.Column("stop_by_ns", sa.BigInteger(), nullable=True),
        sa.Column("gpu", sa.Boolean(), nullable=False),
        sa.Column("lane", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("key"),
    )
    op.create_index("tasks_by_function", "tasks", ["project", "function", "state", "created_ns", "key"], unique=False)
    op.create_index("tasks_by_lane", "tasks", ["state", "lane", "created_ns", "key"], unique=False)
    op.create_index("tasks_by_run", "tasks", ["run_id", "version"], unique=False)
    op.create_index("tasks_by_run_state", "tasks", ["run_id", "state"], unique=False)
    op.create_table(
        "timeline",
        sa.Column("id", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("task", sa.Text(), nullable=False),
        sa.Column("epoch", sa.Integer(), nullable=False),
        sa.Column("at_ns", sa.BigInteger(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("actor", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("timeline_by_task", "timeline", ["task", "id"], unique=False)
    op.create_table(
        "tokens",
        sa.Column("hash", sa.Text(), nullable=False),
        sa.Column("project", sa.Text(), nullable=False),
        sa.Column("scopes", sa.Text(), nullable=False),
        sa.Column("label", sa.Text(), nullable=False),
        sa.Column("created_ns", sa.BigInteger(), nullable=False),
        sa.Column("expires_ns", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("hash"),
    )
    op.create_table(
        "trigger_books",
        sa.Column("project", sa.Text(), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("project"),
    )
    op.create_table(
        "triggers",
        sa.Column("project", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("pipeline", sa.Text(), nullable=False),
        sa.Column("spec", sa.Text(), nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("created_ns", sa.BigInteger(), nullable=False),
        sa.Column("updated_ns", sa.BigInteger(), nullable=False),
        sa.Column("waiting", sa.Integer(), nullable=False),
        sa.Column("due_ns", sa.BigInteger(), nullable=True),
        sa.Column("tick_ns", sa.BigInteger(), nullable=True),
        sa.Column("poll_ns", sa.BigInteger(), nullable=True),
        sa.Column("failures", sa.Integer(), nullable=False),
        sa.Column("rest_until_ns", sa.BigInteger(), nullable=True),
        sa.Column("started_ns", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("project", "name"),
    )
    op.create_index("triggers_by_due", "triggers", ["due_ns"], unique=False)
    op.create_index("triggers_by_poll", "triggers", ["poll_ns"], unique=False)
    op.create_index("triggers_by_tick", "triggers", ["tick_ns"], unique=False)
    op.create_table(
        "workers",
        sa.Column("project", sa.Text(), nullable=False),
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("function", sa.Text(), nullable=False),
        sa.Column("url", sa.Text(), nullable=True),
        sa.Column("busy", sa.Boolean(), nullable=False),
        sa.Column("silent", sa.Boolean(), nullable=False),
        sa.Column("seen_ns", sa.BigInteger(), nullable=False),
        sa.Column("revision", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("project", "id"),
    )
    op.create_index("workers_by_function", "workers", ["project", "function", "busy"], unique=False)
