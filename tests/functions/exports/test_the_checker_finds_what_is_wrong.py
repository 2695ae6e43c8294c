"""Each rule of FOCUS is broken once, on purpose, and the checker names it; what trainlet writes breaks none."""

from __future__ import annotations

from typing import Any

import pytest

from trainlet.core.bills import Period
from trainlet_functions.exports import charges, columns, formats, rules
from trainlet_functions.exports.checking import Checker
from trainlet_functions.exports.parties import Parties

JULY = Period(2026, 7)
USAGE, ROUNDING = 0, -1
NANO = 10**9
DISCOUNT = {
    "CommitmentDiscountId": "c-1",
    "CommitmentDiscountCategory": "Usage",
    "CommitmentDiscountType": "Reserved",
    "CommitmentDiscountStatus": "Used",
    "CommitmentDiscountQuantity": NANO,
    "CommitmentDiscountUnit": "GPU-Seconds",
    "PricingCategory": "Committed",
}


@pytest.fixture
def good(rows: Any) -> dict[str, list[Any]]:
    """Return charges that hold every rule."""
    found = charges.values(rows, JULY, Parties())
    return {column.name: found.get(column.name, [None] * len(rows)) for column in columns.exported("1.2")}


def findings(good: dict[str, list[Any]], place: int = USAGE, version: str = "1.2", **changes: Any) -> list[str]:
    """Return the names of the rules that charges break after changes to one of them."""
    changed = {name: list(values) for name, values in good.items()}
    for name, value in changes.items():
        changed[name][place] = value
    checker = Checker(version)
    checker.charges(changed, len(next(iter(changed.values()))))
    return [finding.rule for finding in checker.findings]


@pytest.mark.parametrize("version", columns.VERSIONS)
def test_I16_what_trainlet_writes_breaks_no_rule(rows: Any, version: str) -> None:
    found = charges.values(rows, JULY, Parties())
    checker = Checker(version)
    checker.names([column.name for column in columns.exported(version)])
    checker.charges(found, len(rows))
    assert [str(one) for one in checker.findings] == []


def test_a_commitment_that_is_whole_breaks_no_rule(good: Any) -> None:
    assert findings(good, **DISCOUNT) == []


@pytest.mark.parametrize("column", columns.exported("1.2"), ids=lambda column: column.name)
def test_a_value_of_another_kind_is_found_in_every_column(good: Any, column: columns.Column) -> None:
    wrong = {"string": "", "decimal": "1,5", "time": "2026-07-01T02:00:00+02:00", "json": '{"a":{"b":1}}'}
    if column.kind in wrong:
        assert any(rule.endswith(f" {column.name}") for rule in findings(good, **{column.name: wrong[column.kind]}))
    if not column.nullable:
        assert f"{column.name}-null" in findings(good, **{column.name: None})


def test_a_placeholder_is_found_where_nobody_gives_names(good: Any) -> None:
    assert "NullHandling-A-002 ChargeDescription" in findings(good, ChargeDescription="N/A")
    assert findings(good, SubAccountId="na", SubAccountName="na", x_Function="undefined") == []


BROKEN: list[tuple[str, int, dict[str, Any]]] = [
    ("ChargeCategory-C-003", USAGE, {"ChargeCategory": "usage"}),
    ("ChargeClass-C-005", USAGE, {"ChargeClass": "Refund"}),
    ("ChargeFrequency-C-003", USAGE, {"ChargeFrequency": "Monthly"}),
    ("PricingCategory-C-007", USAGE, {"PricingCategory": "Spot"}),
    ("CommitmentDiscountCategory-C-005", USAGE, {**DISCOUNT, "CommitmentDiscountCategory": "Time"}),
    ("CommitmentDiscountStatus-C-005", USAGE, {**DISCOUNT, "CommitmentDiscountStatus": "Half"}),
    ("CapacityReservationStatus-C-006", USAGE, {"CapacityReservationId": "r", "CapacityReservationStatus": "Half"}),
    ("ServiceCategory-C-003", USAGE, {"ServiceCategory": "GPUs"}),
    ("ServiceSubcategory-C-004", USAGE, {"ServiceSubcategory": "Containers"}),
    ("BillingCurrency-C-003", USAGE, {"BillingCurrency": "usd"}),
    ("PricingCurrency-C-003", USAGE, {"PricingCurrency": "XYZ"}),
    ("UnitFormat-A PricingUnit", USAGE, {"PricingUnit": "gpu-seconds"}),
    ("UnitFormat-A ConsumedUnit", USAGE, {"ConsumedUnit": "GPU per Second"}),
    ("UnitFormat-A CommitmentDiscountUnit", USAGE, {**DISCOUNT, "CommitmentDiscountUnit": "gigabyte-Seconds"}),
    ("PricingUnit-C-005", ROUNDING, {"PricingUnit": "GPU-Seconds"}),
    ("PricingUnit-C-006", USAGE, {"PricingUnit": None}),
    ("ConsumedUnit-C-005", ROUNDING, {"ConsumedUnit": "GPU-Seconds"}),
    ("ConsumedUnit-C-006", USAGE, {"ConsumedUnit": None}),
    ("CommitmentDiscountUnit-C-005", USAGE, {**DISCOUNT, "CommitmentDiscountQuantity": None}),
    ("CommitmentDiscountUnit-C-006", USAGE, {**DISCOUNT, "CommitmentDiscountUnit": None}),
    ("CommitmentDiscountCategory-C-003", USAGE, {"CommitmentDiscountCategory": "Spend"}),
    ("CommitmentDiscountCategory-C-004", USAGE, {**DISCOUNT, "CommitmentDiscountCategory": None}),
    ("CommitmentDiscountType-C-004", USAGE, {"CommitmentDiscountType": "Reserved"}),
    ("CommitmentDiscountType-C-005", USAGE, {**DISCOUNT, "CommitmentDiscountType": None}),
    ("CommitmentDiscountName-C-004", USAGE, {"CommitmentDiscountName": "ours"}),
    ("CommitmentDiscountStatus-C-003", USAGE, {"CommitmentDiscountStatus": "Used"}),
    ("CommitmentDiscountStatus-C-004", USAGE, {**DISCOUNT, "CommitmentDiscountStatus": None}),
    ("CommitmentDiscountQuantity-C-005", USAGE, {"CommitmentDiscountQuantity": 1, "CommitmentDiscountUnit": "Units"}),
    ("CapacityReservationStatus-C-003", USAGE, {"CapacityReservationStatus": "Used"}),
    ("CapacityReservationStatus-C-004", USAGE, {"CapacityReservationId": "r"}),
    ("BillingAccountType-C-004", USAGE, {"BillingAccountId": None}),
    ("BillingAccountType-C-005", USAGE, {"BillingAccountType": None}),
    ("SubAccountName-C-004", USAGE, {"SubAccountId": None}),
    ("SubAccountName-C-005", USAGE, {"SubAccountName": None}),
    ("SubAccountType-C-004", USAGE, {"SubAccountId": None}),
    ("SubAccountType-C-005", USAGE, {"SubAccountType": None}),
    ("ResourceType-C-004", USAGE, {"ResourceId": None}),
    ("ResourceType-C-005", USAGE, {"ResourceType": None}),
    ("RegionName-C-004", USAGE, {"RegionName": "Europe"}),
    ("RegionName-C-005", USAGE, {"RegionId": "eu"}),
    ("ResourceName-C-004", ROUNDING, {"ResourceName": "run"}),
    ("ResourceName-C-006", USAGE, {"ResourceName": "run-0"}),
    ("SkuMeter-C-004", USAGE, {"SkuId": None}),
    ("SkuPriceDetails-C-004", USAGE, {"SkuPriceId": None}),
    ("SkuPriceDetails-C-017", USAGE, {"SkuPriceDetails": '{"gpuCount":1}'}),
    ("SkuPriceDetails-C-017", USAGE, {"SkuPriceDetails": '{"GpuCount":"1"}'}),
    ("Tags-C-008", USAGE, {"Tags": '{"team":false}'}),
    ("PricingQuantity-C-004", USAGE, {"ChargeCategory": "Tax"}),
    ("ListUnitPrice-C-004", USAGE, {"ChargeCategory": "Tax"}),
    ("SkuId-C-004", USAGE, {"ChargeCategory": "Tax"}),
    ("SkuPriceId-C-004", USAGE, {"ChargeCategory": "Tax"}),
    ("PricingCurrencyContractedUnitPrice-C-004", USAGE, {"ChargeCategory": "Tax"}),
    ("ContractedUnitPrice-C-005", USAGE, {"ChargeCategory": "Tax"}),
    ("PricingCategory-C-003", USAGE, {"ChargeCategory": "Tax"}),
    ("PricingQuantity-C-005", USAGE, {"PricingQuantity": None}),
    ("ListUnitPrice-C-005", USAGE, {"ListUnitPrice": None}),
    ("SkuId-C-005", USAGE, {"SkuId": None}),
    ("SkuPriceId-C-005", USAGE, {"SkuPriceId": None}),
    ("ContractedUnitPrice-C-006", USAGE, {"ContractedUnitPrice": None}),
    ("PricingCategory-C-004", USAGE, {"PricingCategory": None}),
    ("PricingCurrencyContractedUnitPrice-C-005", USAGE, {"PricingCurrencyContractedUnitPrice": None}),
    ("ConsumedQuantity-C-004", ROUNDING, {"ConsumedQuantity": NANO, "ConsumedUnit": "GPU-Seconds"}),
    ("ConsumedQuantity-C-006", USAGE, {"ConsumedQuantity": None}),
    ("ChargeFrequency-C-004", USAGE, {"ChargeCategory": "Purchase"}),
    ("PricingCategory-C-009", USAGE, {"PricingCategory": "Committed"}),
    ("PricingCategory-C-009", USAGE, {**DISCOUNT, "PricingCategory": "Standard"}),
    ("ListUnitPrice-C-008", USAGE, {"ListUnitPrice": -1}),
    ("ContractedUnitPrice-C-009", USAGE, {"ContractedUnitPrice": -1}),
    ("PricingCurrencyListUnitPrice-C-008", USAGE, {"PricingCurrencyListUnitPrice": -1}),
    ("PricingCurrencyContractedUnitPrice-C-008", USAGE, {"PricingCurrencyContractedUnitPrice": -1}),
    ("ContractedCost-C-009", USAGE, {"ContractedCost": 3600 * 10**6 + 1}),
    ("ListCost-C-009", USAGE, {"ListCost": 3600 * 10**6 - 1}),
    ("EffectiveCost-C-010", ROUNDING, {"EffectiveCost": 0}),
    ("ContractedCost-C-008", ROUNDING, {"ContractedCost": 0}),
    ("ListCost-C-008", ROUNDING, {"ListCost": 0}),
    ("EffectiveCost-C-005", USAGE, {**DISCOUNT, "ChargeCategory": "Purchase", "ChargeFrequency": "Recurring"}),
    ("ChargePeriodEnd-C-004", USAGE, {"ChargePeriodEnd": JULY.start_s}),
    ("BillingPeriodEnd-C-004", USAGE, {"BillingPeriodEnd": JULY.start_s}),
    ("ChargeClass-C-003", USAGE, {"ChargePeriodEnd": JULY.end_s + 1}),
    ("ChargeClass-C-003", USAGE, {"ChargeClass": "Correction"}),
    ("ServiceName-C-005", USAGE, {"ServiceCategory": "Compute", "ServiceSubcategory": "Containers"}),
    ("SkuPriceId-C-008", USAGE, {"SkuId": "L40"}),
    ("SkuPriceDetails-C-007", USAGE, {"SkuPriceId": "L4:spot:run"}),
    ("SkuId-C-010", USAGE, {"SkuMeter": "GPU Slice Time"}),
    ("InvoiceId-C-007", USAGE, {"BillingAccountId": "another"}),
    ("BillingCurrency-C-005", USAGE, {"BillingCurrency": "EUR"}),
    ("InvoiceIssuerName of an invoice", USAGE, {"InvoiceIssuerName": "another"}),
    ("SubAccountType-C-006", USAGE, {"SubAccountType": "Team"}),
    ("BillingAccountType-C-006", USAGE, {"BillingAccountType": "Team"}),
    ("x_ChargeId", USAGE, {"x_ChargeId": "INV-2026-07-vision/rounding"}),
]


@pytest.mark.parametrize(("rule", "place", "changes"), BROKEN)
def test_a_charge_that_breaks_a_rule_is_found(good: Any, rule: str, place: int, changes: dict[str, Any]) -> None:
    assert rule in findings(good, place, **changes)


def test_a_unit_of_a_commitment_stays_the_same(good: Any) -> None:
    for place, unit in ((0, "GPU-Seconds"), (1, "GPU-Hours")):
        for name, value in {**DISCOUNT, "CommitmentDiscountUnit": unit}.items():
            good[name][place] = value
    assert "CommitmentDiscountUnit-C-008" in findings(good)


def test_there_is_no_rule_that_no_test_breaks() -> None:
    named = {rule.name for rule in rules.OF_CHARGES} | {name for _, _, name in rules.ONE_EACH}
    assert named - {rule for rule, _, _ in BROKEN} == {"CommitmentDiscountUnit-C-008"}


def test_the_price_of_a_part_of_a_device_is_met_within_two_nano_units(good: Any) -> None:
    part = 2
    assert good["PricingQuantity"][part] == 1200 * NANO
    third = {"PricingQuantity": 333_333_333, "ContractedUnitPrice": 10**6, "ListUnitPrice": 10**6}
    same = {"ConsumedQuantity": 333_333_333, "ListCost": 333_333}
    assert findings(good, part, ContractedCost=333_334, **third, **same) == []
    assert findings(good, part, ContractedCost=333_336, **third, **same) == ["ContractedCost-C-009"]


@pytest.mark.parametrize(
    ("names", "rule"),
    [
        (lambda names: names[1:], "CostAndUsage-D"),
        (lambda names: [*names, "OurColumn"], "ColumnHandling-A-010"),
        (lambda names: [*names, "x_Our-Column"], "ColumnHandling-A-010"),
        (lambda names: [*names, names[0]], "ColumnHandling-A"),
    ],
)
def test_names_of_columns_are_checked(names: Any, rule: str) -> None:
    checker = Checker("1.2")
    checker.names(names([column.name for column in columns.exported("1.2")]))
    assert {finding.rule for finding in checker.findings} == {rule}


@pytest.mark.parametrize(
    ("text", "nano"),
    [
        ("1", NANO),
        ("-0.5", -NANO // 2),
        ("1E3", 1000 * NANO),
        ("2.5E-9", "2.5E-9"),
        ("1e-9", 1),
        ("12.000000000", 12 * NANO),
    ],
)
def test_numbers_are_read_to_the_nano_or_not_at_all(text: str, nano: Any) -> None:
    assert formats.number(text) == nano


@pytest.mark.parametrize(
    "text", ["1,5", "+1", "1.", ".5", "1E+3", "0x1", "1/2", "USD 1", "", "NaN", "Infinity", "\u0661", "1e9999"]
)
def test_what_focus_calls_no_number_is_none(text: str) -> None:
    assert formats.number(text) == text


@pytest.mark.parametrize(
    "text", ["2026-07-01", "2026-07-01T00:00:00", "2026-07-01 00:00:00Z", "2026-13-01T00:00:00Z", "now"]
)
def test_what_focus_calls_no_time_is_none(text: str) -> None:
    assert formats.seconds(text) == text


@pytest.mark.parametrize(
    "unit", ["GPU-Seconds", "Slice-Seconds", "GB", "GB-Hours", "1000 Tokens", "GB/Hour", "Units/3 Months"]
)
def test_units_of_the_specification_are_units(unit: str) -> None:
    assert formats.is_unit(unit)


@pytest.mark.parametrize(
    "unit", ["gpu-seconds", "GPU per Second", "gigabyte-Seconds", "GPU-Second", "", "0 Tokens", "Terabytes"]
)
def test_what_the_specification_calls_no_unit_is_none(unit: str) -> None:
    assert not formats.is_unit(unit)


@pytest.mark.parametrize("text", ["[]", "1", "{", '{"a":1,"a":1}', '{"a":[]}', '{"a":NaN}', ""])
def test_what_is_no_flat_object_is_none(text: str) -> None:
    assert formats.pairs(text) is None
