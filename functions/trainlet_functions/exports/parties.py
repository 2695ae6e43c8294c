"""Who bills whom, as an export names them; the ledger knows only projects."""

from __future__ import annotations

from typing import Annotated

from pydantic import StringConstraints, ValidationError

from trainlet.core.errors import UserError
from trainlet.core.models import Value

Text = Annotated[
    str,
    StringConstraints(min_length=1, max_length=200, strip_whitespace=True, pattern=r"^[^\x00-\x1f\x7f]+$"),
]


class Parties(Value):
    """The issuer of the invoices, who is the provider too, and the account that pays; projects are sub-accounts of it."""

    issuer: Text = "trainlet"
    account_id: Text = "trainlet"
    account_name: Text = "trainlet"

    @classmethod
    def named(cls, **names: str | None) -> Parties:
        """Return the parties with these names; raises UserError for one that no bill can hold."""
        try:
            return cls.model_validate({field: name for field, name in names.items() if name is not None})
        except ValidationError as error:
            first = error.errors()[0]
            option = "--" + str(first["loc"][0]).replace("_", "-")
            raise UserError(
                f"{option} {first['input']!r} is no name: 1 to 200 printable characters on one line."
            ) from None
