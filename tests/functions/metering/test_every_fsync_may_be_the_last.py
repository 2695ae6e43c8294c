"""Power fails at every fsync of the ledger's database in turn: what was acknowledged is there, the rest is sent again."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).with_name("fsyncs.c")
TAKES_IN = """
import ctypes, json, os, shutil, sys
from pathlib import Path
import sqlalchemy as sa
from trainlet.core.clocks import ManualClock
from trainlet.core.wire import Device, LeaseEvent
from trainlet_functions import metering
from trainlet_functions.billing import reports
from trainlet_functions.metering.tables import lease_events
from trainlet_functions.state.database import Database

ANCHOR_NS = 1_767_225_600_400_000_000
root = Path(sys.argv[1])
shim = ctypes.CDLL(None)

def database(folder):
    made = Database(f"sqlite:///{folder / 'state.db'}", ManualClock())
    sa.event.listen(made.engine, "connect", lambda conn, _: conn.execute("PRAGMA wal_autocheckpoint=6"))
    return made

def event(number, held_s):
    lease = f"run.t{number % 3}.1.0"
    named = {"lease": lease, "task": f"run.t{number % 3}", "epoch": 1, "run_id": "run", "function": "train"}
    device = Device(uuid=f"GPU-{number % 3 % 2}", sku="A100-80GB")
    when = {"anchor_ns": ANCHOR_NS + (number % 3) * 5 * 10**9, "elapsed_ns": held_s * 10**9}
    return LeaseEvent(id=f"{lease}:{number}", seq=number, kind="heartbeat", device=device, **named, **when)

batches = [[event(3 * turn + place, 2 * turn + 1) for place in range(3)] for turn in range(5)]

def take(folder, told):
    made = database(folder)
    for turn, batch in enumerate(batches):
        with made.write() as tx:
            metering.ingest(tx, "p", batch)
        os.write(told, bytes([turn]))
    made.close()

def look(folder):
    made = database(folder)
    with made.read() as tx:
        ids = set(tx.conn.execute(sa.select(lease_events.c.id)).scalars())
    with made.write() as tx:
        for batch in reversed(batches):
            metering.ingest(tx, "p", batch)
        rows = [row.model_dump() for row in reports.usage(tx, "p").rows]
    made.close()
    return ids, rows

template = root / "template"
template.mkdir()
first = database(template)
first.migrate()
first.close()
whole = None
survived = []
for count in [-1, *range(200)]:
    folder, live = root / f"{count}", root / f"{count}" / "live"
    shutil.copytree(template, live)
    shutil.copytree(template, folder / "survives")
    heard, told = os.pipe()
    pid = os.fork()
    if not pid:
        shim.power_fails_after(ctypes.c_long(count), str(folder / "survives").encode())
        take(live, told)
        os._exit(0)
    os.close(told)
    acknowledged = os.read(heard, 100)
    while more := os.read(heard, 100):
        acknowledged += more
    os.close(heard)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    ids, rows = look(folder / "survives")
    whole = rows if whole is None else whole
    sent = [{one.id for one in batch} for batch in batches]
    missing = sorted(set().union(*(sent[turn] for turn in acknowledged)) - ids)
    torn = [turn for turn, batch in enumerate(sent) if batch & ids and batch - ids]
    survived.append([count, status, len(acknowledged), missing, torn, rows == whole])
    if count >= 0 and status == 0:
        break
print(json.dumps(survived))
"""


@pytest.mark.timeout(120)
def test_I11_what_was_acknowledged_survives_and_what_is_sent_again_counts_once(tmp_path: Path) -> None:
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None or sys.platform != "linux":
        pytest.skip("it takes a C compiler (apt-get install gcc) and LD_PRELOAD")
    library = str(tmp_path / "fsyncs.so")
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", library, str(SOURCE), "-ldl"], check=True, timeout=60)
    command = [sys.executable, "-c", TAKES_IN, str(tmp_path)]
    env = {**os.environ, "LD_PRELOAD": library}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=110, check=False)
    assert done.returncode == 0, done.stderr
    survived = json.loads(done.stdout)
    assert survived[0][1:3] == survived[-1][1:3] == [0, 5], "nothing failed in the first and the last"
    crashes = [one for one in survived if one[1] == 99]
    assert len(crashes) == len(survived) - 2 >= 6, "each commit syncs once, and checkpoints twice more"
    assert {one[2] for one in crashes} >= {0, 1, 2, 3, 4}
    for count, _, acknowledged, missing, torn, same in survived:
        where = f"power failed after {count} fsyncs with {acknowledged} batches acknowledged"
        assert (missing, torn, same) == ([], [], True), where
