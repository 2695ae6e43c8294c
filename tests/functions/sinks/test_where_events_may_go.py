"""The API calls from inside of a cluster: what a project may have it call is public, its own, or named by the administrator."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainlet.core.errors import AccessError, UserError
from trainlet_functions.sinks.addresses import VARIABLE, Rule
from trainlet_knative.clusters import Cluster

PUBLIC, PRIVATE, METADATA = "93.184.216.34", "10.0.0.7", "169.254.169.254"

API = "http://trainlet-api.trainlet:8080"
CLUSTER = Cluster(
    image="i", api_url=API, store_url="s3://b", public_key="cA==", dead_letter_url=f"{API}/v1/dead-letters"
)


def allowed(url: str, *addresses: str, embedded: bool = False) -> bool:
    """Say whether project `vision` may have an address called that resolves so."""
    rule = Rule(None if embedded else CLUSTER, embedded=embedded)
    try:
        rule.judge("vision", rule.check("vision", url), addresses)
    except AccessError as error:
        assert VARIABLE in str(error)
        return False
    return True


def test_a_public_address_is_called_by_https_only() -> None:
    assert allowed("https://hooks.example/x", PUBLIC, "2606:2800:220:1::1")
    assert not allowed("http://hooks.example/x", PUBLIC)


@pytest.mark.parametrize(
    "address",
    [
        PRIVATE,
        METADATA,
        "127.0.0.1",
        "0.0.0.0",
        "100.64.0.1",
        "192.168.1.1",
        "224.0.0.1",
        "::1",
        "::",
        "fe80::1%eth0",
        "fd00::1",
        "::ffff:10.0.0.7",
        "::ffff:169.254.169.254",
        "64:ff9b::a00:7",
        "2002:a00:7::1",
    ],
)
def test_S2_an_address_that_is_not_public_is_not_called(address: str) -> None:
    assert not allowed("https://hooks.example/x", address)
    assert not allowed("https://hooks.example/x", PUBLIC, address)


@pytest.mark.parametrize("host", ["10.0.0.7", "169.254.169.254", "[::1]", "[::ffff:127.0.0.1]", "127.0.0.1"])
def test_S2_nor_one_that_is_written_as_such(host: str) -> None:
    with pytest.raises(AccessError):
        Rule(None, embedded=False).check("vision", f"https://{host}/x")


def test_a_project_reaches_services_of_its_own_namespace_and_its_broker() -> None:
    for host in ("board.trainlet-vision", "board.trainlet-vision.svc:8080", "board.trainlet-vision.svc.cluster.local"):
        assert allowed(f"http://{host}/events", PRIVATE)
    broker = "http://broker-ingress.knative-eventing.svc.cluster.local"
    assert allowed(f"{broker}/trainlet-vision/default", PRIVATE)
    assert not allowed(f"{broker}/trainlet-other/default", PRIVATE)
    assert not allowed(f"{broker}/trainlet-vision/default/../../trainlet-other/default", PRIVATE)


def test_S2_a_project_does_not_reach_what_others_own() -> None:
    for host in (
        "board.trainlet-other.svc",
        "kubernetes.default.svc",
        "trainlet-vision",
        "x.board.trainlet-vision.svc.evil",
    ):
        assert not allowed(f"http://{host}/events", PRIVATE)


def test_S2_a_service_that_is_another_name_for_the_clouds_metadata_is_not_called() -> None:
    assert not allowed("http://board.trainlet-vision.svc/events", METADATA)


def test_the_administrator_names_hosts_and_networks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "alerts.corp, *.hooks.corp, 10.1.0.0/16")
    assert allowed("http://alerts.corp/x", PRIVATE) and allowed("http://a.hooks.corp/x", PRIVATE)
    assert allowed("https://any.example/x", "10.1.2.3") and allowed("http://10.1.2.3:8080/x", "10.1.2.3")
    assert not allowed("http://hooks.corp/x", PRIVATE)
    assert not allowed("http://alerts.corp/x", METADATA)
    assert not allowed("https://any.example/x", "10.2.0.1")


def test_on_a_persons_own_machine_everything_goes() -> None:
    assert allowed("http://localhost:9000/x", "127.0.0.1", embedded=True)


@given(st.text(max_size=60))
def test_any_text_is_an_address_or_refused_in_words(text: str) -> None:
    for url in (text, f"https://{text}", f"http://host/{text}"):
        try:
            parts = Rule(None, embedded=True).check("p", url)
        except UserError as error:
            assert "sink" in str(error)
        else:
            assert parts.hostname and parts.scheme in ("http", "https")
