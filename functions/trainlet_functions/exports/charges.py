"""From rows of the ledger to the columns of FOCUS, and back.

One row becomes one charge. Money stays what it is: nano-units become decimals with nine digits, so nothing is rounded. A
part of a device (time slicing) is a decimal part of a GPU-second; its cost is the ledger's, which the product of price
and quantity meets within one nano-unit. Where FOCUS allows no null, usage without a price costs 0 and says so in
`x_Unpriced`.
"""

from __future__ import annotations

import functools
import json
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trainlet.core.bills import FULL_SHARE, Period, Row, RowKind, invoice_id
from trainlet.core.errors import UserError
from trainlet.core.gpus import memory_of
from trainlet.core.sums import OWN, shared_of, tags_text
from trainlet_functions.exports.parties import Parties

NANO = 10**9
Values = list[Any]
_CORRECTIONS = ("reversal", "correction")
_RATES = {"standard": "Standard", "committed": "Standard", "spot": "Dynamic"}
_BY = ("function", "task", "run_id")  # the first that there is
_SERVICE = ("AI and Machine Learning", "Machine Learning", "GPU Training")


def unit(sku: str) -> str:
    """Return what a SKU is priced and consumed in."""
    return "Slice-Seconds" if "/" in sku else "GPU-Seconds"


@functools.lru_cache(maxsize=4096)
def _price_details(sku: str, phase: str, rate: str) -> str:
    model, _, profile = sku.partition("/")
    details: dict[str, Any] = {"InstanceSeries": model, "InstanceType": sku, "x_Phase": phase, "x_Rate": rate}
    if profile:
        details["x_MigProfile"] = profile
    else:
        details["GpuCount"] = 1
    memory = memory_of(sku)
    if memory is not None:
        details["x_GpuMemorySize"] = memory // 2**30
    return _json(details)


def _json(value: Mapping[str, Any]) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"))


def _description(row: Row) -> str:
    if row.kind == "rounding":
        return f"Rounding of invoice {invoice_id(row.project, row.period)} to the minor unit of its currency"
    if row.kind == "reversal":
        return f"Takes back {row.corrects}, billed in {row.corrected_period}"
    said = f"{row.sku}{' (virtual)' if row.virtual else ''}, {row.phase}, by {row.function or row.task or row.run_id}"
    if row.kind == "correction":
        said += f", used in {row.corrected_period} and billed now"
    return said + (", no price yet" if row.unpriced else "")


@dataclass(frozen=True, slots=True)
class Lot:
    """Charges by columns. What many of them share is said once for each of `kinds`; `places` says which of them has what,
    and `examples` are charges, one of each.

    Of a text that charges have of their own, an empty one stands for null. `own_fields` are those of the rows themselves.
    """

    rows: Sequence[Row]
    examples: Sequence[Row]
    kinds: Sequence[tuple[Any, ...]]
    places: Sequence[int]
    shared: dict[str, Values]
    own: dict[str, Sequence[Any]]
    own_fields: dict[str, Sequence[Any]]


def lot(rows: Sequence[Row], period: Period, parties: Parties) -> Lot:
    """Return the columns of rows that follow each other; times are seconds and decimals nano-units."""
    numbers: dict[tuple[Any, ...], int] = {}
    places = [numbers.setdefault(kind, len(numbers)) for kind in map(shared_of, rows)]
    examples = dict(zip(places, rows, strict=True))
    of_kinds = [examples[place] for place in range(len(numbers))]
    fields: dict[str, Sequence[Any]] = {
        name: list(map(operator.itemgetter(Row._fields.index(name)), rows)) for name in OWN
    }
    shared, own = _shared(of_kinds, period, parties), _own(rows, places, of_kinds, fields)
    return Lot(rows, of_kinds, list(numbers), places, shared, own, fields)


def values(rows: Sequence[Row], period: Period, parties: Parties) -> dict[str, Values]:
    """Return the values of every column that has any, in the order of the rows."""
    made = lot(rows, period, parties)
    shared = {name: [found[place] for place in made.places] for name, found in made.shared.items()}
    return shared | {name: [None if one == "" else one for one in found] for name, found in made.own.items()}


def _own(
    rows: Sequence[Row], places: Sequence[int], of_kinds: Sequence[Row], fields: Mapping[str, Sequence[Any]]
) -> dict[str, Sequence[Any]]:
    cost, listed = _or_zero(fields["cost_nano"]), _or_zero(fields["list_cost_nano"])
    run_ids, starts, ends = fields["run_id"], fields["start_s"], fields["end_s"]
    parts = [
        None if row.kind == "rounding" else NANO * (-1 if row.kind == "reversal" else 1) * row.share for row in of_kinds
    ]
    quantities = [
        None if (part := parts[place]) is None else ((end - start) * part + FULL_SHARE // 2) // FULL_SHARE
        for place, start, end in zip(places, starts, ends, strict=True)
    ]
    return {
        "BilledCost": cost,
        "ChargeDescription": _descriptions(rows, places, fields),
        "ChargePeriodEnd": ends,
        "ChargePeriodStart": starts,
        "ConsumedQuantity": quantities,
        "ContractedCost": cost,
        "EffectiveCost": cost,
        "ListCost": listed,
        "PricingCurrencyEffectiveCost": cost,
        "PricingQuantity": quantities,
        "ResourceId": run_ids,
        "ResourceType": ["Run" if run_id else "" for run_id in run_ids],
        "Tags": [tags_text(tuple(tags.items())) if tags else "" for tags in fields["tags"]],
        "x_Attempt": fields["epoch"],
        "x_ChargeId": fields["id"],
        "x_CorrectsChargeId": fields["corrects"],
        "x_DeviceId": fields["device"],
        "x_Function": fields["function"],
        "x_LeaseId": fields["lease"],
        "x_Task": fields["task"],
    }


def _or_zero(nanos: Sequence[int | None]) -> Sequence[int]:
    return [nano or 0 for nano in nanos] if None in nanos else nanos  # type: ignore[return-value]


def _descriptions(rows: Sequence[Row], places: Sequence[int], fields: Mapping[str, Sequence[Any]]) -> list[str]:
    by, corrects = fields["function"], fields["corrects"]
    if "" in by:  # some rows are named by their task or run
        by = [one or other or third for one, other, third in zip(*(fields[name] for name in _BY), strict=True)]
    if any(corrects):
        by = [f"{other}\n{one}" for one, other in zip(by, corrects, strict=True)]
    known: dict[int, dict[str, str]] = {place: {} for place in set(places)}
    made: list[str] = []
    for place, one, row in zip(places, by, rows, strict=True):
        text = known[place].get(one)
        if text is None:
            text = known[place][one] = _description(row)
        made.append(text)
    return made


def _shared(rows: Sequence[Row], period: Period, parties: Parties) -> dict[str, Values]:
    """Return the columns that follow from what very many rows have in common."""
    usage = [row.kind != "rounding" for row in rows]

    def each(value: Callable[[Row], Any]) -> Values:
        return [value(row) if used else None for row, used in zip(rows, usage, strict=True)]

    def every(value: Any) -> Values:
        return [value] * len(rows)

    def texts(name: str) -> Values:
        return [getattr(row, name) or None for row in rows]

    currency, units = [row.currency for row in rows], each(lambda row: unit(row.sku))
    prices, list_prices = each(lambda row: row.price_nano or 0), each(lambda row: row.list_price_nano or 0)
    projects = [row.project for row in rows]
    invoices = [invoice_id(row.project, row.period) for row in rows]
    return {
        "BillingAccountId": every(parties.account_id),
        "BillingAccountName": every(parties.account_name),
        "BillingAccountType": every("Account"),
        "BillingCurrency": currency,
        "BillingPeriodEnd": every(period.end_s),
        "BillingPeriodStart": every(period.start_s),
        "ChargeCategory": ["Usage" if used else "Adjustment" for used in usage],
        "ChargeClass": ["Correction" if row.kind in _CORRECTIONS else None for row in rows],
        "ChargeFrequency": ["Usage-Based" if used else "One-Time" for used in usage],
        "ConsumedUnit": units,
        "ContractedUnitPrice": prices,
        "HostProviderName": every(parties.issuer),
        "InvoiceDetailId": [
            f"{one}/{'usage' if used else 'rounding'}" for one, used in zip(invoices, usage, strict=True)
        ],
        "InvoiceId": invoices,
        "InvoiceIssuerName": every(parties.issuer),
        "ListUnitPrice": list_prices,
        "PricingCategory": each(lambda row: _RATES[row.rate]),
        "PricingCurrency": currency,
        "PricingCurrencyContractedUnitPrice": prices,
        "PricingCurrencyListUnitPrice": list_prices,
        "PricingUnit": units,
        "ProviderName": every(parties.issuer),
        "PublisherName": every(parties.issuer),
        "ServiceCategory": every(_SERVICE[0]),
        "ServiceName": every(_SERVICE[2]),
        "ServiceProviderName": every(parties.issuer),
        "ServiceSubcategory": every(_SERVICE[1]),
        "SkuId": texts("sku"),
        "SkuMeter": each(lambda row: "GPU Slice Time" if "/" in row.sku else "GPU Time"),
        "SkuPriceDetails": each(lambda row: _price_details(row.sku, row.phase, row.rate)),
        "SkuPriceId": each(lambda row: f"{row.sku}:{row.rate}:{row.phase}"),
        "SubAccountId": projects,
        "SubAccountName": projects,
        "SubAccountType": every("Project"),
        "x_CorrectedPeriod": texts("corrected_period"),
        "x_Phase": texts("phase"),
        "x_PriceVersion": texts("version"),
        "x_Rate": texts("rate"),
        "x_RowKind": [row.kind for row in rows],
        "x_Share": [row.share for row in rows],
        "x_ShareOffset": [row.part for row in rows],
        "x_Unpriced": [row.unpriced for row in rows],
        "x_Virtual": [row.virtual for row in rows],
    }


# The columns that a row of the ledger is made of again; all others follow from them.
NEEDED = (
    "x_Unpriced",
    "x_RowKind",
    "x_ChargeId",
    "SubAccountId",
    "BillingPeriodStart",
    "ChargePeriodStart",
    "ChargePeriodEnd",
    "BillingCurrency",
    "BilledCost",
    "ListCost",
    "x_LeaseId",
    "ResourceId",
    "x_Task",
    "x_Attempt",
    "x_Function",
    "x_DeviceId",
    "SkuId",
    "x_Virtual",
    "x_Rate",
    "x_Share",
    "x_ShareOffset",
    "Tags",
    "x_Phase",
    "x_PriceVersion",
    "ContractedUnitPrice",
    "ListUnitPrice",
    "x_CorrectsChargeId",
    "x_CorrectedPeriod",
)


def row(charge: Mapping[str, Any]) -> Row:
    """Return the row of the ledger that a charge stands for; raises UserError where a charge cannot be one."""
    try:
        unpriced = charge["x_Unpriced"]
        kind: RowKind = charge["x_RowKind"]
        priced = kind != "rounding" and not unpriced
        return Row(
            id=charge["x_ChargeId"],
            project=charge["SubAccountId"],
            period=str(Period.of(charge["BillingPeriodStart"])),
            kind=kind,
            start_s=charge["ChargePeriodStart"],
            end_s=charge["ChargePeriodEnd"],
            currency=charge["BillingCurrency"],
            cost_nano=None if unpriced else charge["BilledCost"],
            list_cost_nano=None if unpriced else charge["ListCost"],
            lease=charge["x_LeaseId"] or "",
            run_id=charge["ResourceId"] or "",
            task=charge["x_Task"] or "",
            epoch=charge["x_Attempt"],
            function=charge["x_Function"] or "",
            device=charge["x_DeviceId"] or "",
            sku=charge["SkuId"] or "",
            virtual=charge["x_Virtual"],
            rate=charge["x_Rate"] or "",
            share=charge["x_Share"],
            part=charge["x_ShareOffset"],
            tags=json.loads(charge["Tags"]) if charge["Tags"] else {},
            phase=charge["x_Phase"] or "",
            version=charge["x_PriceVersion"] or "",
            price_nano=charge["ContractedUnitPrice"] if priced else None,
            list_price_nano=charge["ListUnitPrice"] if priced else None,
            corrects=charge["x_CorrectsChargeId"] or "",
            corrected_period=charge["x_CorrectedPeriod"] or "",
        )
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise UserError(
            f"Charge {charge.get('x_ChargeId')!r} is no row of a trainlet ledger: {type(error).__name__}: {error}."
        ) from error
