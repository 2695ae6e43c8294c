"""Who may talk to a function: over the network its queue-proxy's callers, over events its own Trigger."""

from __future__ import annotations

from trainlet.core.specs import FunctionSpec
from trainlet_knative.clusters import Cluster
from trainlet_knative.objects.names import Object, labels, metadata

# queue-proxy: requests (HTTP/1, HTTP/2, TLS), what the autoscaler scrapes, what the kubelet asks before it ends a pod.
REQUESTS, METRICS, ADMIN = (8012, 8013, 8112), 9090, 8022


def network_policy(cluster: Cluster, project: str, spec: FunctionSpec) -> Object:
    """Return the policy that lets only Knative in; without it any pod may post to a worker's own port.

    Network plugins let a node reach its own pods; where one does not, `node_cidrs` of the cluster names the nodes.
    """
    rules: list[Object] = []
    if spec.backend == "service":
        rules = [
            {"from": [_namespace(cluster.serving_namespace)], "ports": _ports(*REQUESTS, METRICS)},
            {"from": [_namespace(cluster.ingress_namespace)], "ports": _ports(*REQUESTS)},
        ]
        if cluster.node_cidrs:
            nodes = [{"ipBlock": {"cidr": one}} for one in cluster.node_cidrs]
            rules.append({"from": nodes, "ports": _ports(*REQUESTS, ADMIN)})
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": metadata(cluster, project, spec.name),
        "spec": {
            "podSelector": {"matchLabels": labels(project, spec.name)},
            "policyTypes": ["Ingress"],
            **({"ingress": rules} if rules else {}),  # Kubernetes keeps no empty list: it would look changed for ever
        },
    }


def event_policies(cluster: Cluster, project: str, spec: FunctionSpec) -> list[Object]:
    """Return the policy of a JobSink that takes events from its own Trigger only; a Service cannot have one."""
    if not cluster.oidc or spec.backend != "job":
        return []
    sink = {"apiVersion": "sinks.knative.dev/v1alpha1", "kind": "JobSink", "name": spec.name}
    sender = {"apiVersion": "eventing.knative.dev/v1", "kind": "Trigger", "name": spec.name}
    return [
        {
            "apiVersion": "eventing.knative.dev/v1alpha1",
            "kind": "EventPolicy",
            "metadata": metadata(cluster, project, spec.name),
            "spec": {"to": [{"ref": sink}], "from": [{"ref": {**sender, "namespace": cluster.namespace_of(project)}}]},
        }
    ]


def _namespace(name: str) -> Object:
    return {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": name}}}


def _ports(*numbers: int) -> list[Object]:
    return [{"protocol": "TCP", "port": number} for number in numbers]
