"""Why a function's pods do not run, in the words of whoever knows."""

from __future__ import annotations

from typing import Any

from trainlet_knative.deployments import by_function

LABELS = {"trainlet.dev/function": "f"}


def service(status: str = "True", message: str = "", seen: int = 1) -> dict[str, Any]:
    condition = {"type": "Ready", "status": status, "message": message}
    state = {"observedGeneration": seen, "latestCreatedRevisionName": "f-00001", "conditions": [condition]}
    return {"metadata": {"name": "f", "generation": 1, "labels": LABELS}, "status": state}


def pod(name: str = "f-1", **status: Any) -> dict[str, Any]:
    metadata = {"name": name, "labels": LABELS, "creationTimestamp": "2026-01-01T00:00:00Z"}
    return {"metadata": metadata, "status": {"phase": "Pending", **status}}


def one(found: dict[str, Any], *pods: dict[str, Any], revisions: tuple[Any, ...] = ()) -> Any:
    return by_function([found], [], list(revisions), list(pods))["f"]


def test_a_service_that_is_ready_has_nothing_to_say() -> None:
    state = one(service())
    assert (state.ready, state.failed, state.reason, state.pods, state.revision) == (True, False, "", 0, "f-00001")


def test_a_service_that_knative_has_not_seen_yet_is_not_ready() -> None:
    assert not one(service(seen=0)).ready


def test_a_pod_that_is_not_placed_says_what_the_scheduler_said() -> None:
    placed = {
        "type": "PodScheduled",
        "status": "False",
        "message": "0/3 nodes are available: 3 Insufficient nvidia.com/gpu.",
    }
    state = one(service(), pod(conditions=[placed]))
    assert state.reason == "pod f-1 is not placed: 0/3 nodes are available: 3 Insufficient nvidia.com/gpu."
    assert (state.pods, state.ready_pods) == (1, 0)


def test_an_image_that_cannot_be_pulled_is_named() -> None:
    waiting = {"reason": "ImagePullBackOff", "message": 'Back-off pulling image "w:1"'}
    state = one(service(), pod(containerStatuses=[{"name": "worker", "state": {"waiting": waiting}}]))
    assert state.reason == 'pod f-1, container worker: ImagePullBackOff: Back-off pulling image "w:1"'


def test_the_revisions_own_words_are_preferred_to_the_services() -> None:
    failed = {"type": "Ready", "status": "False", "message": "Unable to fetch image"}
    revision = {"metadata": {"name": "f-00001", "labels": LABELS}, "status": {"conditions": [failed]}}
    state = one(service("False", "RevisionFailed"), revisions=(revision,))
    assert (state.failed, state.reason) == (True, "Unable to fetch image")


def test_the_last_cold_start_is_told_by_phase() -> None:
    def at(second: int) -> str:
        return f"2026-01-01T00:00:{second:02d}Z"

    conditions = [
        {"type": "PodScheduled", "status": "True", "lastTransitionTime": at(2)},
        {"type": "Ready", "status": "True", "lastTransitionTime": at(12)},
    ]
    running = [{"name": "worker", "state": {"running": {"startedAt": at(9)}}}]
    state = one(service(), pod(phase="Running", conditions=conditions, containerStatuses=running))
    assert state.cold_start == {"schedule": 2.0, "pull": 7.0, "boot": 3.0}
    assert state.ready_pods == 1


def test_pods_that_have_ended_or_are_going_do_not_count() -> None:
    going = pod("f-2")
    going["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert one(service(), going, pod("f-3", phase="Succeeded")).pods == 0
