"""CloudEvents SQL, version 1: expressions over the attributes of an event, such as `subject LIKE 'images/%'`.

Written after the specification (github.com/cloudevents/spec, `cesql/spec.md`) and tested with its cases. Where it leaves a
choice, the choice is what Knative Eventing does, because the same text may be given to a broker: binary logic operators
group to the right, a sign that touches digits belongs to the number, integers wrap at 32 bits, evaluation ends at the
first error. Characters are Unicode's, as specified; Eventing counts bytes, which differs outside ASCII only.

This package knows texts and attributes. It must not know subscriptions, brokers or where an event came from.
"""

from trainlet_functions.triggers.cesql.expressions import Expression, Outcome, parse
from trainlet_functions.triggers.cesql.faults import ParseError

__all__ = ["Expression", "Outcome", "ParseError", "parse"]
