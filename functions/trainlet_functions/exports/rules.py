"""What FOCUS demands of a charge, as rules that each name the requirement they stand for.

A rule looks at the values of a few columns of one charge: texts, nano-units, UTC seconds, None, or a text that could not be
read. FOCUS's own numbers are in the names (`ChargeClass-C-005`), so that a finding can be looked up. Where a rule speaks of a
*unit*, both versions of FOCUS have it, unless `columns` are missing in one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from trainlet_functions.exports import formats, vocabularies
from trainlet_functions.exports.columns import Column

NANO = 10**9


@dataclass(frozen=True, slots=True)
class Rule:
    """A requirement: what it is called, the columns that it looks at, what it says, and whether their values hold it."""

    name: str
    columns: tuple[str, ...]
    says: str
    holds: Callable[..., bool]


def of_columns(columns: tuple[Column, ...]) -> list[Rule]:
    """Return what follows from the type of each column."""
    made: list[Rule] = []
    for column in columns:
        name = column.name
        if not column.nullable:
            made.append(Rule(f"{name}-null", (name,), f"{name} must not be null", _given))
        if column.kind == "string":
            named = name.startswith("x_") or name.endswith(("Id", "Name"))  # what people name may be called "unknown"
            holds = _not_empty if named else _no_placeholder
            made.append(Rule(f"NullHandling-A-002 {name}", (name,), f"{name} must not be a placeholder", holds))
        elif column.kind == "decimal":
            made.append(Rule(f"NumericFormat-A {name}", (name,), f"{name} must be a plain number", _whole))
        elif column.kind == "time":
            says = f"{name} must be a time in UTC such as 2026-07-01T00:00:00Z"
            made.append(Rule(f"DateTimeFormat-A {name}", (name,), says, _whole))
        elif column.kind == "json":
            says = f"{name} must be a flat JSON object without a key twice"
            made.append(Rule(f"KeyValueFormat-A {name}", (name,), says, _flat))
    return made


def _given(value: Any) -> bool:
    return value is not None


def _not_empty(value: Any) -> bool:
    return value is None or bool(value.strip())


def _no_placeholder(value: Any) -> bool:
    return value is None or (value.strip() == value and value.lower() not in vocabularies.PLACEHOLDERS)


def _whole(value: Any) -> bool:
    return value is None or isinstance(value, int)


def _flat(value: Any) -> bool:
    return value is None or formats.pairs(value) is not None


def _one_of(name: str, number: str, words: tuple[str, ...]) -> Rule:
    says = f"{name} must be one of {', '.join(words)}"
    return Rule(f"{name}-{number}", (name,), says, lambda value: value is None or value in words)


def _null_with(name: str, number: str, other: str) -> Rule:
    says = f"{name} must be null where {other} is"
    return Rule(f"{name}-{number}", (name, other), says, lambda mine, its: its is not None or mine is None)


def _given_with(name: str, number: str, other: str) -> Rule:
    says = f"{name} must not be null where {other} is given"
    return Rule(f"{name}-{number}", (name, other), says, lambda mine, its: its is None or mine is not None)


def _together(name: str, null: str, given: str, other: str) -> list[Rule]:
    return [_null_with(name, null, other), _given_with(name, given, other)]


def _none_on_tax(name: str, number: str) -> Rule:
    says = f"{name} must be null on Tax"
    return Rule(
        f"{name}-{number}", (name, "ChargeCategory"), says, lambda value, category: category != "Tax" or value is None
    )


def _needed(name: str, number: str) -> Rule:
    def holds(value: Any, category: Any, kind: Any) -> bool:
        return value is not None or category not in ("Usage", "Purchase") or kind == "Correction"

    says = f"{name} must not be null on Usage and Purchase, except in a Correction"
    return Rule(f"{name}-{number}", (name, "ChargeCategory", "ChargeClass"), says, holds)


def _not_negative(name: str, number: str) -> Rule:
    says = f"{name} must not be negative"
    return Rule(f"{name}-{number}", (name,), says, lambda value: not isinstance(value, int) or value >= 0)


def _currency(name: str, number: str) -> Rule:
    says = f"{name} must be a code of ISO 4217"
    return Rule(f"{name}-{number}", (name,), says, lambda value: value is None or value in vocabularies.CURRENCIES)


def _unit(name: str) -> Rule:
    says = f"{name} must be a unit such as GPU-Seconds"
    return Rule(f"UnitFormat-A {name}", (name,), says, lambda value: value is None or formats.is_unit(value))


def _product(cost: str, number: str, price: str) -> Rule:
    """Make the rule that a cost is price times quantity: exactly for whole units, within two nano-units for parts."""

    def holds(total: Any, each: Any, quantity: Any, kind: Any) -> bool:
        if kind == "Correction" or not all(isinstance(one, int) for one in (total, each, quantity)):
            return True
        difference: int = abs(each * quantity - total * NANO)
        return difference <= (2 * NANO if quantity % NANO else 0)

    says = f"{cost} must be {price} times PricingQuantity"
    return Rule(f"{cost}-{number}", (cost, price, "PricingQuantity", "ChargeClass"), says, holds)


def _as_billed(cost: str, number: str, price: str | None) -> Rule:
    def holds(total: Any, billed: Any, category: Any, *prices: Any) -> bool:
        alone = category in ("Credit", "Adjustment") and all(one is None for one in prices)
        return not alone or total == billed

    says = f"{cost} of a charge that depends on no other must be its BilledCost"
    return Rule(f"{cost}-{number}", (cost, "BilledCost", "ChargeCategory", *([price] if price else [])), says, holds)


def _ordered(start: str, end: str) -> Rule:
    def holds(first: Any, last: Any) -> bool:
        return not (isinstance(first, int) and isinstance(last, int)) or first < last

    return Rule(f"{end}-C-004", (start, end), f"{end} is exclusive and must come after {start}", holds)


def _inside(begin: Any, end: Any, start: Any, until: Any, kind: Any) -> bool:
    if not all(isinstance(one, int) for one in (begin, end, start, until)):
        return True
    return bool(end <= start) if kind == "Correction" else bool(start <= begin and end <= until)


def _subcategory(category: Any, sub: Any) -> bool:
    return category not in vocabularies.SERVICES or sub is None or sub in vocabularies.SERVICES[category]


def _consumed_null(value: Any, category: Any, status: Any) -> bool:
    return value is None or (category == "Usage" and status != "Unused")


def _consumed_given(value: Any, category: Any, status: Any, kind: Any) -> bool:
    return value is not None or category != "Usage" or status == "Unused" or kind == "Correction"


def _details(value: Any) -> bool:
    for name, one in (formats.pairs(value or "{}") or {}).items():
        number = isinstance(one, int | float) and not isinstance(one, bool)
        if name in vocabularies.NUMERIC_DETAILS:
            if not number:
                return False
        elif name in vocabularies.TEXT_DETAILS:
            if not isinstance(one, str):
                return False
        elif not name.startswith("x_"):
            return False
    return True


def _tags(value: Any) -> bool:
    return all(
        name and (isinstance(one, str) or one is True) for name, one in (formats.pairs(value or "{}") or {}).items()
    )


def _discount_quantity(value: Any, discount: Any, category: Any, kind: Any) -> bool:
    if discount is None or category not in ("Usage", "Purchase"):
        return value is None
    return value is not None or kind == "Correction"


_DISCOUNT = "CommitmentDiscount"
OF_CHARGES: tuple[Rule, ...] = (
    _one_of("ChargeCategory", "C-003", vocabularies.CHARGE_CATEGORIES),
    _one_of("ChargeClass", "C-005", vocabularies.CHARGE_CLASSES),
    _one_of("ChargeFrequency", "C-003", vocabularies.CHARGE_FREQUENCIES),
    _one_of("PricingCategory", "C-007", vocabularies.PRICING_CATEGORIES),
    _one_of(f"{_DISCOUNT}Category", "C-005", vocabularies.DISCOUNT_CATEGORIES),
    _one_of(f"{_DISCOUNT}Status", "C-005", vocabularies.USED),
    _one_of("CapacityReservationStatus", "C-006", vocabularies.USED),
    _one_of("ServiceCategory", "C-003", tuple(vocabularies.SERVICES)),
    Rule(
        "ServiceSubcategory-C-004",
        ("ServiceCategory", "ServiceSubcategory"),
        "ServiceSubcategory must be one of its ServiceCategory",
        _subcategory,
    ),
    _currency("BillingCurrency", "C-003"),
    _currency("PricingCurrency", "C-003"),
    _unit("PricingUnit"),
    _unit("ConsumedUnit"),
    _unit(f"{_DISCOUNT}Unit"),
    *_together("PricingUnit", "C-005", "C-006", "PricingQuantity"),
    *_together("ConsumedUnit", "C-005", "C-006", "ConsumedQuantity"),
    *_together(f"{_DISCOUNT}Unit", "C-005", "C-006", f"{_DISCOUNT}Quantity"),
    *_together(f"{_DISCOUNT}Category", "C-003", "C-004", f"{_DISCOUNT}Id"),
    *_together(f"{_DISCOUNT}Type", "C-004", "C-005", f"{_DISCOUNT}Id"),
    _null_with(f"{_DISCOUNT}Name", "C-004", f"{_DISCOUNT}Id"),
    _null_with(f"{_DISCOUNT}Status", "C-003", f"{_DISCOUNT}Id"),
    Rule(
        f"{_DISCOUNT}Status-C-004",
        (f"{_DISCOUNT}Status", f"{_DISCOUNT}Id", "ChargeCategory"),
        f"{_DISCOUNT}Status must not be null on Usage of a commitment",
        lambda status, discount, category: status is not None or discount is None or category != "Usage",
    ),
    Rule(
        f"{_DISCOUNT}Quantity-C-005",
        (f"{_DISCOUNT}Quantity", f"{_DISCOUNT}Id", "ChargeCategory", "ChargeClass"),
        f"{_DISCOUNT}Quantity belongs to Usage and Purchase of a commitment, and only there",
        _discount_quantity,
    ),
    _null_with("CapacityReservationStatus", "C-003", "CapacityReservationId"),
    Rule(
        "CapacityReservationStatus-C-004",
        ("CapacityReservationStatus", "CapacityReservationId", "ChargeCategory"),
        "CapacityReservationStatus must not be null on Usage of a reservation",
        lambda status, reservation, category: status is not None or reservation is None or category != "Usage",
    ),
    *_together("BillingAccountType", "C-004", "C-005", "BillingAccountId"),
    *_together("SubAccountName", "C-004", "C-005", "SubAccountId"),
    *_together("SubAccountType", "C-004", "C-005", "SubAccountId"),
    *_together("ResourceType", "C-004", "C-005", "ResourceId"),
    *_together("RegionName", "C-004", "C-005", "RegionId"),
    _null_with("ResourceName", "C-004", "ResourceId"),
    Rule(
        "ResourceName-C-006",
        ("ResourceName", "ResourceId"),
        "ResourceName must not repeat ResourceId",
        lambda name, id: name is None or name != id,
    ),
    _null_with("SkuMeter", "C-004", "SkuId"),
    _null_with("SkuPriceDetails", "C-004", "SkuPriceId"),
    Rule(
        "SkuPriceDetails-C-017",
        ("SkuPriceDetails",),
        "SkuPriceDetails must hold properties that FOCUS names, of their type, or such that begin with x_",
        _details,
    ),
    Rule("Tags-C-008", ("Tags",), "Tags must hold texts, or true where a tag has no value", _tags),
    *(
        _none_on_tax(name, "C-004")
        for name in ("PricingQuantity", "ListUnitPrice", "SkuId", "SkuPriceId", "PricingCurrencyContractedUnitPrice")
    ),
    _none_on_tax("ContractedUnitPrice", "C-005"),
    _none_on_tax("PricingCategory", "C-003"),
    *(_needed(name, "C-005") for name in ("PricingQuantity", "ListUnitPrice", "SkuId", "SkuPriceId")),
    _needed("ContractedUnitPrice", "C-006"),
    _needed("PricingCategory", "C-004"),
    _needed("PricingCurrencyContractedUnitPrice", "C-005"),
    Rule(
        "ConsumedQuantity-C-004",
        ("ConsumedQuantity", "ChargeCategory", f"{_DISCOUNT}Status"),
        "ConsumedQuantity must be null unless something was used",
        _consumed_null,
    ),
    Rule(
        "ConsumedQuantity-C-006",
        ("ConsumedQuantity", "ChargeCategory", f"{_DISCOUNT}Status", "ChargeClass"),
        "ConsumedQuantity must not be null on Usage, except in a Correction",
        _consumed_given,
    ),
    Rule(
        "ChargeFrequency-C-004",
        ("ChargeFrequency", "ChargeCategory"),
        "ChargeFrequency must not be Usage-Based on a Purchase",
        lambda frequency, category: frequency != "Usage-Based" or category != "Purchase",
    ),
    Rule(
        "PricingCategory-C-009",
        ("PricingCategory", f"{_DISCOUNT}Id", "ChargeCategory"),
        "PricingCategory must be Committed for Usage of a commitment, and only there",
        lambda pricing, discount, category: (
            category != "Usage" or (pricing == "Committed") == (discount is not None) or pricing is None
        ),
    ),
    _not_negative("ListUnitPrice", "C-008"),
    _not_negative("ContractedUnitPrice", "C-009"),
    _not_negative("PricingCurrencyListUnitPrice", "C-008"),
    _not_negative("PricingCurrencyContractedUnitPrice", "C-008"),
    _product("ContractedCost", "C-009", "ContractedUnitPrice"),
    _product("ListCost", "C-009", "ListUnitPrice"),
    _as_billed("EffectiveCost", "C-010", None),
    _as_billed("ContractedCost", "C-008", "ContractedUnitPrice"),
    _as_billed("ListCost", "C-008", "ListUnitPrice"),
    Rule(
        "EffectiveCost-C-005",
        ("EffectiveCost", "ChargeCategory", f"{_DISCOUNT}Id"),
        "EffectiveCost must be 0 where a commitment is purchased",
        lambda cost, category, discount: category != "Purchase" or discount is None or cost == 0,
    ),
    _ordered("ChargePeriodStart", "ChargePeriodEnd"),
    _ordered("BillingPeriodStart", "BillingPeriodEnd"),
    Rule(
        "ChargeClass-C-003",
        ("ChargePeriodStart", "ChargePeriodEnd", "BillingPeriodStart", "BillingPeriodEnd", "ChargeClass"),
        "a charge must lie in its billing period, and a Correction must lie before it",
        _inside,
    ),
)

# What may have one value only wherever the first column has the same one.
ONE_EACH: tuple[tuple[str, str, str], ...] = (
    ("ServiceName", "ServiceCategory", "ServiceName-C-005"),
    ("SkuPriceId", "SkuId", "SkuPriceId-C-008"),
    ("SkuPriceId", "SkuPriceDetails", "SkuPriceDetails-C-007"),
    ("SkuId", "SkuMeter", "SkuId-C-010"),
    ("InvoiceId", "BillingAccountId", "InvoiceId-C-007"),
    ("InvoiceId", "BillingCurrency", "BillingCurrency-C-005"),
    ("InvoiceId", "InvoiceIssuerName", "InvoiceIssuerName of an invoice"),
    ("SubAccountId", "SubAccountType", "SubAccountType-C-006"),
    ("BillingAccountId", "BillingAccountType", "BillingAccountType-C-006"),
    (f"{_DISCOUNT}Id", f"{_DISCOUNT}Unit", f"{_DISCOUNT}Unit-C-008"),
)
