"""What a worker gives to the code of an attempt: the bundle that was deployed, and the devices that it holds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from trainlet.client.stores import open_store
from trainlet.core import bundles, wire

pytestmark = pytest.mark.timeout(60)

VISIBLE = """
    import os
    def f():
        return os.environ["CUDA_VISIBLE_DEVICES"]
"""
LEAVES_A_TRACE = """
    from pathlib import Path
    Path("TRACE").touch()
    def f():
        return "ran"
"""


@pytest.mark.parametrize("count", [1, 2])
def test_a_child_sees_the_devices_that_it_holds_by_uuid_and_no_other(bench: Any, count: int) -> None:
    held = [wire.Device(uuid=f"GPU-{number}0f1e2d3c", sku="A100-80GB") for number in range(count)]
    bench.offer(VISIBLE, devices=held)
    bench.start(CUDA_VISIBLE_DEVICES="0,1,2,3")
    assert bench.finish().output == ",".join(device.uuid for device in held)


def test_virtual_devices_show_a_child_no_real_one(bench: Any) -> None:
    bench.offer(VISIBLE, gpu=True)
    bench.start(CUDA_VISIBLE_DEVICES="0,1,2,3")
    assert bench.finish().output == ""


def test_S1_a_bundle_that_was_replaced_in_the_store_is_refused_and_none_of_it_runs(bench: Any, tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    key = bench.offer("def f(): return 'deployed'")
    spec = bench.api.offered[key].spec
    manifest = bundles.BundleManifest(entry=spec.entry)
    source = "\n".join(line[4:] for line in LEAVES_A_TRACE.replace("TRACE", str(trace)).splitlines())
    files = {f"{spec.entry.module}.py": source.encode(), bundles.MANIFEST: manifest.model_dump_json().encode()}
    _, data = bundles.pack(files)
    place = Path(bench.store_url) / bundles.bundle_key(spec.bundle)
    assert place.read_bytes() == open_store(bench.store_url).get(bundles.bundle_key(spec.bundle))
    place.chmod(0o600)
    place.write_bytes(data)
    bench.start()
    finish = bench.finish()
    assert (finish.outcome, finish.output, finish.error.kind) == ("failed", None, "platform")
    assert f"not {spec.bundle[:12]} as registered; it is refused" in finish.error.message
    assert not trace.exists()
    bench.offer("def f(): return 'next'")
    assert bench.finish().output == "next"
