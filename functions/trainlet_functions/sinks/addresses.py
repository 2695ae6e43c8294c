"""Where events may be sent to: public addresses by https, and private ones only where somebody in charge said so.

A project chooses a URL and the API calls it from inside of the cluster: without a rule that would reach the cloud's
metadata, databases and other tenants. The name is resolved here, every address is judged, and the courier connects to the
address that was judged, so that a name cannot turn into another address in between.

- On a person's own machine everything goes: whoever is there could call it themselves.
- On a cluster: public addresses by https; services of the project's own namespace; its broker; and what the administrator
  names in TRAINLET_SINK_HOSTS (names, `*.suffix`, networks such as 10.1.0.0/16), separated by commas.
"""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol
from urllib.parse import SplitResult, urlsplit

from trainlet.core.errors import AccessError, UserError

VARIABLE = "TRAINLET_SINK_HOSTS"
_NAT64 = ipaddress.ip_network("64:ff9b::/96")
Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class Cluster(Protocol):
    """What is asked of the settings of a cluster."""

    def namespace_of(self, project: str) -> str:
        """Return the namespace of a project."""
        ...

    def broker_url(self, project: str) -> str:
        """Return where the broker of a project is."""
        ...


@dataclass(frozen=True, slots=True)
class Rule:
    """What one platform allows. Without a `cluster` it is a person's own machine."""

    cluster: Cluster | None
    embedded: bool

    def check(self, project: str, url: str) -> SplitResult:
        """Return the parts of a URL; raises UserError for what is none, AccessError for what is never allowed."""
        parts = parse(url)
        literal = _literal(parts.hostname or "")
        if literal is not None:
            self.judge(project, parts, [literal])
        return parts

    def judge(self, project: str, parts: SplitResult, addresses: Sequence[str]) -> str:
        """Return the address to connect to; raises AccessError when any that the name has is not allowed."""
        if not addresses:
            raise AccessError(f"{parts.hostname} has no address.")
        if not self.embedded:
            networks = _networks()
            for text in addresses:
                self._judge(project, parts, _unwrapped(ipaddress.ip_address(text.partition("%")[0])), networks)
        return addresses[0]

    def _judge(
        self,
        project: str,
        parts: SplitResult,
        address: Address,
        networks: Sequence[ipaddress.IPv4Network | ipaddress.IPv6Network],
    ) -> None:
        host = parts.hostname or ""
        if any(address in network for network in networks):
            return
        never = address.is_loopback or address.is_link_local or address.is_multicast or address.is_unspecified
        if not never and (_named(parts) or self._inside(project, parts)):
            return
        if never or not address.is_global:
            raise AccessError(
                f"{host} is {address}, which is no public address. Sinks may be public, or services in the project's own "
                f"namespace; the administrator allows others in {VARIABLE}."
            )
        if parts.scheme == "http":
            raise AccessError(
                f"http://{host} would take events over the public network unencrypted. Use https, or have the "
                f"administrator name the host in {VARIABLE}."
            )

    def _inside(self, project: str, parts: SplitResult) -> bool:
        """Say whether this is a service of the project's own namespace, or its broker."""
        if self.cluster is None:
            return False
        namespace = self.cluster.namespace_of(project)
        host = (parts.hostname or "").rstrip(".")
        service = host.partition(".")[2]
        if service in (namespace, f"{namespace}.svc", f"{namespace}.svc.cluster.local"):
            return True
        broker = urlsplit(self.cluster.broker_url(project))
        return (parts.hostname, parts.port, parts.path) == (broker.hostname, broker.port, broker.path)


def parse(url: str) -> SplitResult:
    """Return the parts of a URL; raises UserError for one that no event can be sent to."""
    try:
        parts = urlsplit(url)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        good = False
    if not good or not url.isascii() or not url.isprintable() or " " in url:
        raise UserError(f"{url[:200]!r} is no address of a sink. Write it as https://HOST/PATH.")
    if "@" in parts.netloc or parts.fragment:
        raise UserError(f"The address of a sink has no user, password or fragment: {parts.hostname}.")
    return parts


def _literal(host: str) -> str | None:
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        return None


def _unwrapped(address: Address) -> Address:
    """Return the IPv4 address that is inside of an IPv6 one."""
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            return address.ipv4_mapped
        if address.sixtofour is not None:
            return address.sixtofour
        if address in _NAT64:
            return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return address


def _allowed() -> list[str]:
    return [one.strip().lower() for one in os.environ.get(VARIABLE, "").split(",") if one.strip()]


def _networks() -> list[ipaddress.IPv4Network | ipaddress.IPv6Network]:
    found = []
    for one in _allowed():
        try:
            found.append(ipaddress.ip_network(one))
        except ValueError:
            continue
    return found


def _named(parts: SplitResult) -> bool:
    """Say whether the administrator named this host."""
    host = (parts.hostname or "").rstrip(".")
    for one in _allowed():
        if host == one or (one.startswith("*.") and host.endswith(one[1:])):
            return True
    literal = _literal(host)
    return literal is not None and any(ipaddress.ip_address(literal) in network for network in _networks())
