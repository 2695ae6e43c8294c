"""The columns of FOCUS's Cost and Usage dataset, version by version, and our own behind them.

Names, types and nulls are those of the FinOps Open Cost and Usage Specification. Its versions 1.2 and 1.4 differ in who
is named (provider and publisher, or host and service provider) and in what newer versions can say of allocations,
contracts and invoice lines. Our columns begin with `x_` and carry the rest of a ledger row, so that an export can be
turned back into exactly the rows that it was made of.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from trainlet.core.durations import nearest
from trainlet.core.errors import UserError

Kind = Literal["string", "decimal", "time", "json", "integer", "boolean"]
PRECISION, SCALE = 38, 9


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its type, and whether it may be null."""

    name: str
    kind: Kind
    nullable: bool = True


def _columns(kind: Kind, required: str, nullable: str) -> tuple[Column, ...]:
    never = tuple(Column(name, kind, nullable=False) for name in required.split())
    return never + tuple(Column(name, kind) for name in nullable.split())


_SHARED = (
    *_columns(
        "string",
        "BillingAccountId BillingAccountType BillingCurrency ChargeCategory ChargeFrequency InvoiceIssuerName "
        "ServiceCategory ServiceName ServiceSubcategory",
        "AvailabilityZone BillingAccountName CapacityReservationId CapacityReservationStatus ChargeClass "
        "ChargeDescription CommitmentDiscountCategory CommitmentDiscountId CommitmentDiscountName CommitmentDiscountStatus "
        "CommitmentDiscountType CommitmentDiscountUnit ConsumedUnit InvoiceId PricingCategory PricingCurrency PricingUnit "
        "RegionId RegionName ResourceId ResourceName ResourceType SkuId SkuMeter SkuPriceId SubAccountId SubAccountName "
        "SubAccountType",
    ),
    *_columns(
        "decimal",
        "BilledCost ContractedCost EffectiveCost ListCost",
        "CommitmentDiscountQuantity ConsumedQuantity ContractedUnitPrice ListUnitPrice PricingCurrencyContractedUnitPrice "
        "PricingCurrencyEffectiveCost PricingCurrencyListUnitPrice PricingQuantity",
    ),
    *_columns("time", "BillingPeriodEnd BillingPeriodStart ChargePeriodEnd ChargePeriodStart", ""),
    *_columns("json", "", "SkuPriceDetails Tags"),
)
_ONLY: dict[str, tuple[Column, ...]] = {
    "1.2": _columns("string", "ProviderName PublisherName", ""),
    "1.4": (
        *_columns(
            "string",
            "HostProviderName ServiceProviderName",
            "AllocatedMethodId AllocatedResourceId AllocatedResourceName InvoiceDetailId",
        ),
        *_columns(
            "json", "", "AllocatedMethodDetails AllocatedTags CommitmentProgramEligibilityDetails ContractApplied"
        ),
    ),
}
OWN = (
    *_columns("string", "x_ChargeId x_RowKind", ""),
    *_columns(
        "string",
        "",
        "x_CorrectsChargeId x_CorrectedPeriod x_Task x_Function x_LeaseId x_DeviceId x_Phase x_Rate x_PriceVersion",
    ),
    *_columns("integer", "x_Attempt x_Share x_ShareOffset", ""),
    *_columns("boolean", "x_Unpriced x_Virtual", ""),
)
VERSIONS = tuple(_ONLY)


def focus(version: str) -> tuple[Column, ...]:
    """Return the columns of a version of FOCUS in the order of their names; raises UserError for another one."""
    if version not in _ONLY:
        raise UserError(f"--focus {version}: this version of FOCUS is not written. {nearest(version, VERSIONS)}")
    return tuple(sorted((*_SHARED, *_ONLY[version]), key=lambda column: column.name))


def exported(version: str) -> tuple[Column, ...]:
    """Return all columns of an export: those of FOCUS first, then our own."""
    return (*focus(version), *OWN)
