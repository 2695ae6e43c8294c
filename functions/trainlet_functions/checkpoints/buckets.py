"""What only an S3 bucket has, through boto3: versions, lifecycle rules, unfinished uploads, torn writes, signed links.

Checkpoints are never uploaded in parts (`packs`), but large artifacts are, and their abandoned parts are invisible and cost
money. The age of an upload is the server's own time minus the server's own time: no clock of this machine decides.
"""

from __future__ import annotations

import contextlib
import http.client
import time
import uuid
from collections.abc import Iterator
from datetime import datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import urlsplit

from trainlet.client.stores import s3
from trainlet.core.errors import PlatformError, UserError

ABANDONED = timedelta(days=1)
TORN_BYTES = 3 << 20


class Bucket:
    """A bucket and a prefix in it, by the URL of a store. Raises UserError when boto3 is missing."""

    def __init__(self, url: str) -> None:
        try:
            import boto3
            from botocore.config import Config
        except ImportError:
            raise UserError("Looking at a bucket needs boto3: pip install 'trainlet[server]'") from None
        parts = urlsplit(url)
        self._name = parts.netloc
        self._prefix = f"{parts.path.strip('/')}/".lstrip("/")
        endpoint, region = s3.place()
        self._client: Any = boto3.client(
            "s3",
            endpoint_url=endpoint,
            region_name=region,
            config=Config(
                connect_timeout=10,
                read_timeout=30,
                signature_version="s3v4",
                request_checksum_calculation="when_required",
                response_checksum_validation="when_required",
                s3={"addressing_style": "path"} if endpoint else {},
            ),
        )

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def now(self) -> datetime:
        """Return the time of the server."""
        with self._errors():
            reply = self._client.head_bucket(Bucket=self._name)
        return parsedate_to_datetime(reply["ResponseMetadata"]["HTTPHeaders"]["date"])

    def skew_s(self) -> float:
        """Return by how much the clock of this machine is ahead of the server's."""
        return time.time() - self.now().timestamp()

    def versioned(self) -> bool:
        """Say whether removed objects stay as older versions, and cost."""
        with self._errors():
            return bool(self._client.get_bucket_versioning(Bucket=self._name).get("Status") == "Enabled")

    def ends_uploads(self) -> bool:
        """Say whether a rule of the bucket ends uploads that nobody finishes."""
        from botocore.exceptions import ClientError

        with self._errors():
            try:
                rules = self._client.get_bucket_lifecycle_configuration(Bucket=self._name).get("Rules", [])
            except ClientError as error:
                if error.response.get("Error", {}).get("Code") == "NoSuchLifecycleConfiguration":
                    return False
                raise
        return any("AbortIncompleteMultipartUpload" in rule and rule.get("Status") == "Enabled" for rule in rules)

    def abandoned(self) -> list[tuple[str, str]]:
        """Return (key, upload) of uploads under the prefix that began more than a day ago, by the server's time."""
        before = self.now() - ABANDONED
        with self._errors():
            pages = self._client.get_paginator("list_multipart_uploads").paginate(
                Bucket=self._name, Prefix=self._prefix
            )
            uploads = [one for page in pages for one in page.get("Uploads", [])]
        return [(one["Key"], one["UploadId"]) for one in uploads if one["Initiated"] < before]

    def sweep(self) -> int:
        """End abandoned uploads; returns how many."""
        found = self.abandoned()
        with self._errors():
            for key, upload in found:
                self._client.abort_multipart_upload(Bucket=self._name, Key=key, UploadId=upload)
        return len(found)

    def tears(self) -> bool:
        """Say whether a write that is cut off in the middle changes or makes an object."""
        key = f"{self._prefix}doctor/{uuid.uuid4().hex}"
        whole = b"whole"
        with self._errors():
            self._client.put_object(Bucket=self._name, Key=key, Body=whole)
            try:
                for one in (key, f"{key}.new"):
                    self._cut_off(one)
                left = self._client.get_object(Bucket=self._name, Key=key)["Body"].read()
                made = self._client.list_objects_v2(Bucket=self._name, Prefix=f"{key}.new").get("KeyCount", 0)
            finally:
                for one in (key, f"{key}.new"):
                    self._client.delete_object(Bucket=self._name, Key=one)
        return bool(left != whole or made)

    def checks_sums(self) -> bool:
        """Say whether an object is refused whose MD5 is not the one that was sent along."""
        from botocore.exceptions import ClientError

        key = f"{self._prefix}doctor/{uuid.uuid4().hex}"
        with self._errors():
            try:
                self._client.put_object(Bucket=self._name, Key=key, Body=b"x", ContentMD5="AAAAAAAAAAAAAAAAAAAAAA==")
            except ClientError as error:
                if error.response.get("Error", {}).get("Code") == "NoSuchBucket":
                    raise
                return True
            finally:
                self._client.delete_object(Bucket=self._name, Key=key)
        return False

    def link(self, key: str, valid_s: int) -> str:
        """Return a URL that reads an object of the store, for so many seconds and as long as the credentials live."""
        with self._errors():
            url = self._client.generate_presigned_url(
                "get_object", {"Bucket": self._name, "Key": f"{self._prefix}{key}"}, ExpiresIn=valid_s
            )
        return str(url)

    def _cut_off(self, key: str) -> None:
        """Begin a write, and go away after half of it."""
        parts = urlsplit(self._client.generate_presigned_url("put_object", {"Bucket": self._name, "Key": key}))
        kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        connection = kind(parts.netloc, timeout=30)
        with contextlib.suppress(OSError, http.client.HTTPException):
            connection.putrequest("PUT", f"{parts.path}?{parts.query}")
            connection.putheader("Content-Length", str(2 * TORN_BYTES))
            connection.endheaders()
            connection.send(b"torn" * (TORN_BYTES // 4))
        connection.close()

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            yield
        except (ClientError, BotoCoreError) as error:
            raise PlatformError(f"The bucket {self._name} failed: {error}") from error
