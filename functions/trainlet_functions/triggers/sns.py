"""Messages of Amazon SNS: signed by AWS, of a topic that the hook names, or refused.

Anybody can make a topic, so a signature of AWS says nothing until the topic is one that was named; and everything that is
fetched follows from that name: the certificate comes from the SNS of the topic's own region, over TLS, and from nowhere
else. A machine without the internet has it in a file that TRAINLET_SNS_CERTIFICATES names; then nothing is fetched.
The form of what is signed is that of "Verifying the signatures of Amazon SNS messages" in Amazon's developer guide.
"""

from __future__ import annotations

import base64
import os
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from trainlet.core.errors import PlatformError, UserError
from trainlet_functions.triggers.adapters import shapes
from trainlet_functions.triggers.webhooks import Refused

VARIABLE = "TRAINLET_SNS_CERTIFICATES"
TOPIC = re.compile(r"arn:(aws|aws-cn|aws-us-gov):sns:([a-z0-9-]{5,30}):\d{12}:[A-Za-z0-9_-]{1,256}(\.fifo)?")
OLDEST_S = 24 * 3600.0  # SNS tries for an hour at most; within this, a repetition is known as one
AHEAD_S = 300.0
_MOST_CERTIFICATE = 32 * 1024
_MOST_KEPT = 16
_TIMEOUT_S = 5.0
_LEAST_BITS = 2048
_FILE = re.compile(r"/SimpleNotificationService-[A-Za-z0-9]{8,64}\.pem")
_SIGNER = re.compile(r"sns(-signing)?([.-][a-z0-9-]+)?\.amazonaws\.com(\.cn)?")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?Z")
_ASKS = ("Message", "MessageId", "SubscribeURL", "Timestamp", "Token", "TopicArn", "Type")
_SIGNED: Mapping[str, tuple[str, ...]] = {
    "Notification": ("Message", "MessageId", "Subject", "Timestamp", "TopicArn", "Type"),
    "SubscriptionConfirmation": _ASKS,
    "UnsubscribeConfirmation": _ASKS,
}
_HASHES: Mapping[str, Callable[[], hashes.HashAlgorithm]] = {"1": hashes.SHA1, "2": hashes.SHA256}
Fetch = Callable[[str], bytes]


def check_topics(topics: Sequence[str]) -> None:
    """Raise UserError for what is no name of a topic."""
    if not topics:
        raise UserError(
            "A hook of the scheme sns names its topics: anybody can make one, and AWS signs for all. "
            "Add --topic arn:aws:sns:REGION:ACCOUNT:NAME."
        )
    for topic in topics:
        if not TOPIC.fullmatch(topic):
            raise UserError(f"{topic!r} is no topic of SNS; write arn:aws:sns:REGION:ACCOUNT:NAME.")


class Certificates:
    """The certificates that SNS signs with: fetched once each, or those of a file."""

    def __init__(self, trusted: Sequence[x509.Certificate] | None = None, fetch: Fetch | None = None) -> None:
        self._trusted = trusted
        self._fetch = fetch or fetch_certificate
        self._kept: dict[str, x509.Certificate] = {}
        self._lock = threading.Lock()

    @classmethod
    def from_environment(cls, variables: Mapping[str, str] = os.environ) -> Certificates:
        """Take those of the file that TRAINLET_SNS_CERTIFICATES names, if it names one."""
        path = variables.get(VARIABLE)
        if not path:
            return cls()
        try:
            return cls(x509.load_pem_x509_certificates(Path(path).read_bytes()))
        except (OSError, ValueError) as error:
            raise UserError(f"{VARIABLE}={path} is no file with certificates in PEM: {error}") from None

    def of(self, url: str) -> Sequence[x509.Certificate]:
        """Return what may have signed a message with this (checked) URL; raises PlatformError when it cannot be had."""
        if self._trusted is not None:
            return self._trusted
        with self._lock:
            known = self._kept.get(url)
        if known is not None:
            return [known]
        raw = self._fetch(url)
        try:
            if len(raw) > _MOST_CERTIFICATE:
                raise ValueError(f"it has more than {_MOST_CERTIFICATE} bytes")
            found = x509.load_pem_x509_certificate(raw)
        except ValueError as error:
            raise Refused(f"what is at its SigningCertURL is no certificate ({error})") from None
        with self._lock:
            while len(self._kept) >= _MOST_KEPT:
                del self._kept[next(iter(self._kept))]
            self._kept[url] = found
        return [found]


def fetch_certificate(url: str) -> bytes:
    """Get a certificate over TLS: no redirects, no more than it may be, not for long; raises PlatformError."""
    try:
        with httpx.stream("GET", url, follow_redirects=False, timeout=_TIMEOUT_S) as answer:
            if answer.status_code != 200:
                raise PlatformError(f"The certificate {url} could not be fetched: HTTP {answer.status_code}.")
            raw = b""
            for part in answer.iter_raw(8192):
                raw += part
                if len(raw) > _MOST_CERTIFICATE:
                    break
            return raw
    except httpx.HTTPError as error:
        raise PlatformError(f"The certificate {url} could not be fetched: {error}. SNS sends this again.") from error


def check(topics: Sequence[str], certificates: Certificates, body: bytes, now_s: float) -> None:
    """Raise Refused unless a message is one of SNS, new, and of one of the topics; PlatformError when that is not known."""
    form = _message(body)
    kind, topic = form["Type"], form["TopicArn"]
    if topic not in topics:
        raise Refused("its topic is none of those that the hook names")
    _check_time(form["Timestamp"], now_s)
    url = _certificate_url(form.get("SigningCertURL", form.get("SigningCertUrl")), topic)
    algorithm = _HASHES.get(str(form.get("SignatureVersion")))
    if algorithm is None:
        raise Refused("its SignatureVersion is neither 1 nor 2")
    try:
        signature = base64.b64decode(form.get("Signature"), validate=True)  # type: ignore[arg-type]  # it may be anything
    except (TypeError, ValueError):
        raise Refused("its Signature is missing or no base64") from None
    said = "".join(f"{name}\n{form[name]}\n" for name in _SIGNED[kind] if name in form).encode("utf-8", "surrogatepass")
    if not any(_signed_by(one, signature, said, algorithm(), now_s) for one in certificates.of(url)):
        raise Refused("no certificate of SNS that is good now has signed it")


def _message(body: bytes) -> dict[str, Any]:
    try:
        form = shapes.loads(body, "message of SNS")
    except UserError as error:
        raise Refused(str(error)) from None
    names = _SIGNED.get(str(form.get("Type"))) if isinstance(form, dict) else None
    if names is None:
        raise Refused(
            "it is no message of SNS with its envelope; raw message delivery has no signature, so switch that off"
        )
    for name in names:
        if name == "Subject" and form.get(name) is None:  # left out, or null: it is not signed then
            form.pop(name, None)
        elif not isinstance(form.get(name), str):
            raise Refused(f"its {name} is missing or no text")
    return form  # type: ignore[no-any-return]


def _check_time(text: str, now_s: float) -> None:
    if not _TIME.fullmatch(text):
        raise Refused("its Timestamp is no time in UTC")
    try:
        said_s = datetime.fromisoformat(text[:19] + "+00:00").timestamp()
    except ValueError:
        raise Refused("its Timestamp is no time in UTC") from None
    if not -AHEAD_S <= now_s - said_s <= OLDEST_S:
        raise Refused(f"its Timestamp {text} is more than a day ago, or ahead: it is a repetition, or a clock is wrong")


def _certificate_url(url: Any, topic: str) -> str:
    """Return the URL when it is one of the SNS of the topic's region; raises Refused."""
    named = TOPIC.fullmatch(topic)
    if named is None or not isinstance(url, str) or len(url) > 300:
        raise Refused("its SigningCertURL is missing or too long")
    host = f"sns.{named[2]}.amazonaws.com" + (".cn" if named[1] == "aws-cn" else "")
    try:
        path = urlsplit(url).path
    except ValueError:
        path = ""
    if not _FILE.fullmatch(path) or url != f"https://{host}{path}":  # nothing else: no port, user, query or other host
        raise Refused(f"its SigningCertURL is no certificate of https://{host}")
    return url


def _signed_by(
    one: x509.Certificate, signature: bytes, said: bytes, algorithm: hashes.HashAlgorithm, now_s: float
) -> bool:
    now = datetime.fromtimestamp(now_s, UTC)
    if not one.not_valid_before_utc <= now <= one.not_valid_after_utc or not _is_of_sns(one):
        return False
    key = one.public_key()
    if not isinstance(key, rsa.RSAPublicKey) or key.key_size < _LEAST_BITS:
        return False
    try:
        key.verify(signature, said, padding.PKCS1v15(), algorithm)
    except InvalidSignature:
        return False
    return True


def _is_of_sns(one: x509.Certificate) -> bool:
    names = [str(name.value) for name in one.subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)]
    try:
        more = one.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        names += more.get_values_for_type(x509.DNSName)
    except (x509.ExtensionNotFound, ValueError):
        pass
    return any(_SIGNER.fullmatch(name) for name in names)
