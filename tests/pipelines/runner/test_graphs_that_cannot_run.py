"""A graph that cannot end, or that names what it does not have, is an error before anything runs."""

from __future__ import annotations

import pytest
from runner_parts import Scripted, node, out

from trainlet.core import graphs
from trainlet.core.errors import UserError

EACH = graphs.Scope(id="e", kind="each", items=graphs.Constant(value=[1]))
WHEN = graphs.Scope(
    id="w", kind="when", condition=graphs.Condition(operator="truthy", operands=(graphs.Constant(value=1),))
)
EXIT = graphs.Scope(id="x", kind="exit")


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ([node("a", x=out("b")), node("b", x=out("a"))], "cycle: .*a.*b"),
        ([node("a", after=("a",))], "cycle"),
        ([WHEN, node("i", "w", x=out("o")), node("o", x=out("i"))], "cycle"),
        ([EACH, node("i", "e", x=out("o")), node("o", xs=graphs.Collected(scope="e", value=out("i")))], "cycle"),
        ([WHEN, node("i", "w", after=("o",)), node("j", "w"), node("o", after=("j",))], "cycle"),
        ([node("train"), node("b", x=out("trian"))], "'trian'.* Did you mean 'train'"),
        ([node("b", after=("nobody",))], "'nobody', which it does not have"),
        ([node("a", "nowhere")], "'nowhere', which is no scope"),
        ([node("a"), node("a")], "two parts named 'a'"),
        ([EACH, node("i", "e"), node("o", x=out("i"))], "'i' in 'o', outside of 'e'.* Collect"),
        ([node("a", x=graphs.Item(scope="e")), EACH], "item of 'e' in 'a', which is not inside"),
        ([node("a", x=graphs.RunStatus())], "status in 'a'"),
        ([EXIT, node("n", "x"), node("o", after=("n",))], "'n', which runs at the end only"),
        ([WHEN, EXIT.model_copy(update={"parent": "w"})], "exit scope 'x' inside 'w'"),
        ([WHEN.model_copy(update={"condition": None})], "when scope 'w' without"),
        ([EACH.model_copy(update={"parent": "w"}), WHEN.model_copy(update={"parent": "e"})], "inside of each other"),
        ([EACH, node("i", "e", xs=graphs.Collected(scope="e", value=out("i")))], "cycle"),
        ([node("a", xs=graphs.Collected(scope="w", value=out("a"))), WHEN], "collects 'w'"),
        ([node("a", x=graphs.Parameter(name="lr"))], "needs lr. Pass lr="),
    ],
)  # fmt: skip
def test_it_is_refused_in_words(walk, parts, said):
    executor = Scripted()
    with pytest.raises(UserError, match=said) as caught:
        walk(parts, executor)
    assert executor.started == [] and "'g'" in str(caught.value)


def test_an_output_that_nobody_makes_is_refused(walk):
    with pytest.raises(UserError, match="'gone'"):
        walk([node("a")], Scripted(), {"result": out("gone")})
