"""The words that FOCUS allows, and the codes of currencies (ISO 4217, as of 2026)."""

from __future__ import annotations

CHARGE_CATEGORIES = ("Usage", "Purchase", "Tax", "Credit", "Adjustment")
CHARGE_CLASSES = ("Correction",)
CHARGE_FREQUENCIES = ("One-Time", "Recurring", "Usage-Based")
PRICING_CATEGORIES = ("Standard", "Dynamic", "Committed", "Other")
DISCOUNT_CATEGORIES = ("Spend", "Usage")
USED = ("Used", "Unused")

# The subcategories of each service category, beside "Other (...)", which every one has.
_SERVICES = {
    "AI and Machine Learning": "AI Platforms|Bots|Generative AI|Machine Learning|Natural Language Processing",
    "Analytics": "Analytics Platforms|Business Intelligence|Data Processing|Search|Streaming Analytics",
    "Business Applications": "Productivity and Collaboration",
    "Compute": "Containers|End User Computing|Quantum Compute|Serverless Compute|Virtual Machines",
    "Databases": "Caching|Data Warehouses|Ledger Databases|NoSQL Databases|Relational Databases|Time Series Databases",
    "Developer Tools": "Developer Platforms|Continuous Integration and Deployment|Development Environments|"
    "Source Code Management|Quality Assurance",
    "Identity": "Identity and Access Management",
    "Integration": "API Management|Messaging|Workflow Orchestration",
    "Internet of Things": "IoT Analytics|IoT Platforms",
    "Management and Governance": "Architecture|Compliance|Cost Management|Data Governance|Disaster Recovery|"
    "Endpoint Management|Observability|Support",
    "Media": "Content Creation|Gaming|Media Streaming|Mixed Reality",
    "Migration": "Data Migration|Resource Migration",
    "Mobile": "",
    "Multicloud": "Multicloud Integration",
    "Networking": "Application Networking|Content Delivery|Network Connectivity|Network Infrastructure|Network Routing|"
    "Network Security",
    "Security": "Secret Management|Security Posture Management|Threat Detection and Response",
    "Storage": "Backup Storage|Block Storage|File Storage|Object Storage|Storage Platforms",
    "Web": "Application Platforms",
    "Other": "",
}
SERVICES: dict[str, frozenset[str]] = {
    category: frozenset({*filter(None, several.split("|")), f"Other ({category})"})
    for category, several in _SERVICES.items()
}

# Properties of a SKU price that FOCUS names; every other one begins with `x_`.
NUMERIC_DETAILS = frozenset(
    {
        "CoreCount",
        "DiskMaxIops",
        "DiskSpace",
        "GpuCount",
        "MemorySize",
        "NetworkMaxIops",
        "NetworkMaxThroughput",
    }
)
TEXT_DETAILS = frozenset(
    {"DiskType", "InstanceSeries", "InstanceType", "OperatingSystem", "Redundancy", "StorageClass"}
)

_CODES = (
    "AED AFN ALL AMD AOA ARS AUD AWG AZN BAM BBD BDT BGN BHD BIF BMD BND BOB BOV BRL BSD BTN BWP BYN BZD CAD CDF CHE "
    "CHF CHW CLF CLP CNY COP COU CRC CUP CVE CZK DJF DKK DOP DZD EGP ERN ETB EUR FJD FKP GBP GEL GHS GIP GMD GNF GTQ "
    "GYD HKD HNL HTG HUF IDR ILS INR IQD IRR ISK JMD JOD JPY KES KGS KHR KMF KPW KRW KWD KYD KZT LAK LBP LKR LRD LSL "
    "LYD MAD MDL MGA MKD MMK MNT MOP MRU MUR MVR MWK MXN MXV MYR MZN NAD NGN NIO NOK NPR NZD OMR PAB PEN PGK PHP PKR "
    "PLN PYG QAR RON RSD RUB RWF SAR SBD SCR SDG SEK SGD SHP SLE SOS SRD SSP STN SVC SYP SZL THB TJS TMT TND TOP TRY "
    "TTD TWD TZS UAH UGX USD USN UYI UYU UYW UZS VED VES VND VUV WST XAF XAG XAU XCD XCG XDR XOF XPD XPF XPT XSU XUA "
    "YER ZAR ZMW ZWG "
)
CURRENCIES = frozenset(_CODES.split())
PLACEHOLDERS = frozenset({"", "n/a", "na", "none", "null", "nil", "not applicable", "unknown", "undefined", "-", "--"})
