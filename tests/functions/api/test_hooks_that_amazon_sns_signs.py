"""`--scheme sns`: a message comes in when AWS signed it, of a topic that the hook names, and nothing else does."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from trainlet.core.errors import PlatformError, UserError
from trainlet_functions.triggers import sns

TOPIC = "arn:aws:sns:eu-central-1:123456789012:digits"
HOST = "https://sns.eu-central-1.amazonaws.com"
URL = f"{HOST}/SimpleNotificationService-0123456789abcdef0123456789abcdef.pem"
NOTICE = {
    "Records": [
        {
            "eventSource": "aws:s3",
            "eventName": "ObjectCreated:Put",
            "eventTime": "2026-01-01T00:00:00.000Z",
            "s3": {"bucket": {"name": "raw"}, "object": {"key": "images/1.png", "size": 1, "sequencer": "01"}},
        }
    ]
}


class Aws:
    """Signs as SNS does, with a key of its own."""

    def __init__(self, name: str = "sns.amazonaws.com", *, days: tuple[int, int] = (-1, 1), bits: int = 2048) -> None:
        self.key = rsa.generate_private_key(65537, bits)
        subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
        now = datetime.now(UTC)
        made = x509.CertificateBuilder(subject, subject, self.key.public_key(), x509.random_serial_number())
        made = made.not_valid_before(now + timedelta(days=days[0])).not_valid_after(now + timedelta(days=days[1]))
        self.certificate = made.sign(self.key, hashes.SHA256())
        self.pem = self.certificate.public_bytes(serialization.Encoding.PEM)

    def sign(self, form: dict[str, Any]) -> dict[str, Any]:
        asks = form["Type"] != "Notification"
        names = ("Message", "MessageId", "SubscribeURL", "Subject", "Timestamp", "Token", "TopicArn", "Type")
        left_out = "Subject" if asks else ("SubscribeURL", "Token")
        said = "".join(f"{name}\n{form[name]}\n" for name in names if name in form and name not in left_out)
        algorithm = hashes.SHA256() if form["SignatureVersion"] == "2" else hashes.SHA1()
        signature = self.key.sign(said.encode(), padding.PKCS1v15(), algorithm)
        return {**form, "Signature": base64.b64encode(signature).decode()}


@pytest.fixture(scope="module")
def aws() -> Aws:
    return Aws()


def message(**changes: Any) -> dict[str, Any]:
    form = {
        "Type": "Notification",
        "MessageId": "m-1",
        "TopicArn": TOPIC,
        "Subject": "Amazon S3 Notification",
        "Message": json.dumps(NOTICE),
        "Timestamp": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.000Z"),
        "SignatureVersion": "2",
        "SigningCertURL": URL,
        "UnsubscribeURL": f"{HOST}/?Action=Unsubscribe",
    }
    return {name: value for name, value in {**form, **changes}.items() if value is not None}


def confirmation(**changes: Any) -> dict[str, Any]:
    more = {"Subject": None, "Token": "t", "SubscribeURL": f"{HOST}/?Action=ConfirmSubscription", "Message": "please"}
    return message(**{"Type": "SubscriptionConfirmation", **more, **changes})


@pytest.fixture
def send(stand: Any, person: Any, http: Any, aws: Aws) -> Callable[..., Any]:
    """Make a hook and return what posts to it; the certificate is there already."""
    stand.certificates = sns.Certificates([aws.certificate])
    made = person("POST", "/v1/hooks", {"adapter": "s3", "scheme": "sns", "topics": [TOPIC]})
    assert made.status_code == 201 and made.json["hook"]["topics"] == [TOPIC]

    def post(form: Any, path: str = made.json["path"]) -> Any:
        return http.post(path, data=json.dumps(form), headers={"Content-Type": "text/plain; charset=UTF-8"})

    return post


@pytest.mark.parametrize("version", ["1", "2"])
@pytest.mark.parametrize("subject", ["Amazon S3 Notification", None])
def test_what_sns_signed_comes_in_once(send: Any, person: Any, aws: Aws, version: str, subject: str | None) -> None:
    form = aws.sign(message(SignatureVersion=version, Subject=subject))
    assert [send(form).json["new"] for _ in range(2)] == [1, 0]
    (event,) = person("GET", "/v1/events").json["items"]
    assert (event["type"], event["source"]) == ("com.amazonaws.s3.objectcreated", "s3://raw")


def test_a_topic_that_asks_is_believed_when_sns_signed_it(send: Any, person: Any, aws: Aws) -> None:
    assert send(aws.sign(confirmation())).json["new"] == 1
    (event,) = person("GET", "/v1/events").json["items"]
    assert event["type"] == "com.amazonaws.sns.subscriptionconfirmation"
    forged = {**aws.sign(confirmation(MessageId="m-2")), "SubscribeURL": "https://evil.example/"}
    assert send(forged).status_code == 401
    assert send(aws.sign(confirmation(Type="UnsubscribeConfirmation"))).json["new"] == 0


REFUSED: dict[str, tuple[Callable[[Aws], Any], str]] = {
    "not signed": (lambda aws: message(), "base64"),
    "an empty signature": (lambda aws: {**message(), "Signature": ""}, "no certificate"),
    "signed by somebody else": (lambda aws: Aws().sign(message()), "no certificate"),
    "the message changed": (lambda aws: {**aws.sign(message()), "Message": json.dumps({"Records": []})}, "no certif"),
    "the subject changed": (lambda aws: {**aws.sign(message()), "Subject": "x"}, "no certificate"),
    "another version": (lambda aws: {**aws.sign(message()), "SignatureVersion": "1"}, "no certificate"),
    "a version to come": (lambda aws: {**aws.sign(message()), "SignatureVersion": "3"}, "neither 1 nor 2"),
    "another topic": (lambda aws: aws.sign(message(TopicArn=TOPIC + "2")), "topic"),
    "long ago": (lambda aws: aws.sign(message(Timestamp="2020-01-01T00:00:00.000Z")), "a day ago"),
    "the future": (lambda aws: aws.sign(message(Timestamp="2099-01-01T00:00:00.000Z")), "clock"),
    "no time": (lambda aws: aws.sign(message(Timestamp="2020-13-41T00:00:00Z")), "no time"),
    "raw delivery": (lambda aws: NOTICE, "raw message delivery"),
    "a kind that is not signed": (lambda aws: {**aws.sign(message()), "Type": "Other"}, "raw message delivery"),
    "a number": (lambda aws: 7, "raw message delivery"),
    "a list": (lambda aws: [aws.sign(message())], "raw message delivery"),
    "no message": (lambda aws: {**aws.sign(message()), "Message": None}, "Message is missing"),
    "a token instead of a subject": (lambda aws: aws.sign(message(Type="SubscriptionConfirmation")), "missing"),
}


def test_S2_what_sns_did_not_sign_for_this_topic_is_refused(send: Any, person: Any, aws: Aws) -> None:
    for case, (make, said) in REFUSED.items():
        answer = send(make(aws))
        assert answer.status_code == 401 and said in answer.json["detail"], case
    assert person("GET", "/v1/events").json["items"] == []


ELSEWHERE = [
    "http://sns.eu-central-1.amazonaws.com/SimpleNotificationService-0123456789abcdef.pem",
    "https://sns.us-east-1.amazonaws.com/SimpleNotificationService-0123456789abcdef.pem",
    "https://s3.eu-central-1.amazonaws.com/SimpleNotificationService-0123456789abcdef.pem",
    "https://sns.eu-central-1.amazonaws.com.evil.example/SimpleNotificationService-0123456789abcdef.pem",
    "https://sns.eu-central-1.amazonaws.com@evil.example/SimpleNotificationService-0123456789abcdef.pem",
    "https://sns.eu-central-1.amazonaws.com:8443/SimpleNotificationService-0123456789abcdef.pem",
    "https://sns.eu-central-1.amazonaws.com/SimpleNotificationService-0123456789abcdef.pem?x=1",
    "https://sns.eu-central-1.amazonaws.com/SimpleNotificationService-0123456789abcdef.pem#x",
    "https://sns.eu-central-1.amazonaws.com/a/../SimpleNotificationService-0123456789abcdef.pem",
    "https://SNS.eu-central-1.amazonaws.com/SimpleNotificationService-0123456789abcdef.pem",
    "https://sns.eu-central-1.amazonaws.com/evil.pem",
    "https://sns.eu-central-1.amazonaws.com/SimpleNotificationService-0123456789abcdef.pem\n",
    "https://[",
    "x" * 1000,
    7,
    None,
]


def test_S2_a_certificate_from_anywhere_else_is_never_asked_for(stand: Any, send: Any, person: Any, aws: Aws) -> None:
    asked: list[str] = []
    stand.certificates = sns.Certificates(fetch=lambda where: asked.append(where) or aws.pem)  # type: ignore[func-returns-value]
    for url in ELSEWHERE:
        answer = send(aws.sign(message(SigningCertURL=url)))
        assert answer.status_code == 401 and "SigningCertURL" in answer.json["detail"], url
    assert asked == [] and person("GET", "/v1/events").json["items"] == []


def test_S2_nobody_without_the_url_makes_the_api_fetch_anything(stand: Any, send: Any, person: Any, aws: Aws) -> None:
    asked: list[str] = []
    stand.certificates = sns.Certificates(fetch=lambda where: asked.append(where) or aws.pem)  # type: ignore[func-returns-value]
    path = person("GET", "/v1/hooks").json["items"][0]["path"]
    assert send(aws.sign(message()), path + "/tlh_guessed").status_code == 401
    assert send(aws.sign(message(TopicArn=TOPIC + "2"))).status_code == 401
    assert asked == []


def test_a_certificate_is_fetched_once_and_one_that_cannot_be_had_has_sns_come_again(
    stand: Any, send: Any, aws: Aws
) -> None:
    asked: list[str] = []
    down = True

    def fetch(url: str) -> bytes:
        asked.append(url)
        if down:
            raise PlatformError("the internet is away")
        return aws.pem

    stand.certificates = sns.Certificates(fetch=fetch)
    assert send(aws.sign(message())).status_code == 503, "SNS sends again what was answered so"
    down = False
    assert [send(aws.sign(message())).json["new"] for _ in range(3)] == [1, 0, 0]
    assert asked == [URL, URL]


@pytest.mark.parametrize(
    "made",
    [
        lambda: Aws("sns.evil.example"),
        lambda: Aws("sns.amazonaws.com.evil.example"),
        lambda: Aws(days=(-3, -2)),
        lambda: Aws(days=(1, 2)),
        lambda: Aws(bits=1024),
    ],
    ids=["another name", "a longer name", "too old", "too new", "a short key"],
)
def test_S2_a_certificate_that_is_not_good_signs_nothing(stand: Any, send: Any, made: Callable[[], Aws]) -> None:
    other = made()
    stand.certificates = sns.Certificates([other.certificate])
    assert send(other.sign(message())).status_code == 401


def test_what_is_no_certificate_or_endless_is_refused_and_not_kept(stand: Any, send: Any, aws: Aws) -> None:
    given = [b"<html>", aws.pem + b" " * 40_000, aws.pem]
    stand.certificates = sns.Certificates(fetch=lambda url: given.pop(0))
    assert [send(aws.sign(message())).status_code for _ in range(3)] == [401, 401, 202]


def test_certificates_of_a_file_are_trusted_and_nothing_is_fetched(tmp_path: Path, aws: Aws) -> None:
    file = tmp_path / "sns.pem"
    file.write_bytes(Aws().pem + aws.pem)
    certificates = sns.Certificates.from_environment({sns.VARIABLE: str(file)})
    body = json.dumps(aws.sign(message())).encode()
    sns.check([TOPIC], certificates, body, datetime.now(UTC).timestamp())
    elsewhere = json.dumps(aws.sign(message(SigningCertURL="https://evil.example/a.pem"))).encode()
    with pytest.raises(sns.Refused, match="SigningCertURL"):
        sns.check([TOPIC], certificates, elsewhere, datetime.now(UTC).timestamp())
    file.write_text("nothing")
    with pytest.raises(UserError, match="TRAINLET_SNS_CERTIFICATES"):
        sns.Certificates.from_environment({sns.VARIABLE: str(file)})


@pytest.fixture
def serve() -> Iterator[Callable[[int, bytes], str]]:
    servers: list[ThreadingHTTPServer] = []

    def start(status: int, body: bytes) -> str:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(status)
                if status == 302:
                    self.send_header("Location", "http://127.0.0.1:1/elsewhere")
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None: ...

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        servers.append(server)
        return f"http://127.0.0.1:{server.server_port}/a.pem"

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def test_a_fetch_follows_no_redirect_and_reads_no_more_than_a_certificate(serve: Any, aws: Aws) -> None:
    assert sns.fetch_certificate(serve(200, aws.pem)) == aws.pem
    assert 32 * 1024 < len(sns.fetch_certificate(serve(200, b"x" * 10_000_000))) < 256 * 1024
    for status in (302, 404, 500):
        with pytest.raises(PlatformError, match=f"HTTP {status}"):
            sns.fetch_certificate(serve(status, b""))


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"scheme": "sns"}, "--topic arn:aws:sns"),
        ({"scheme": "sns", "topics": ["arn:aws:sqs:eu-central-1:123456789012:digits"]}, "no topic of SNS"),
        ({"scheme": "sns", "topics": ["arn:aws:sns:eu-central-1:123456789012:*"]}, "no topic of SNS"),
        ({"scheme": "sns", "topics": ["arn:aws:sns:x.evil.example/:123456789012:digits"]}, "no topic of SNS"),
        ({"topics": [TOPIC]}, "--scheme sns"),
        ({"adapter": "github", "scheme": "sns", "topics": [TOPIC]}, "adapter s3"),
    ],
)
def test_a_hook_without_a_topic_of_sns_is_refused(person: Any, asked: dict[str, Any], said: str) -> None:
    answer = person("POST", "/v1/hooks", {"adapter": "s3", **asked})
    assert answer.status_code == 422 and said in answer.json["detail"]
