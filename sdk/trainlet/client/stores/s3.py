"""S3-compatible storage through obstore.

Create-once is `PUT` with `If-None-Match: *`. A reply may be lost after the server applied the PUT, and the client's
own retry then reports "exists" for one's own write: so on a conflict the object is read back, and equal bytes count as
won only when this very call had an ambiguous failure before. A conflict without an object is AWS's 409: two writers met,
and it is tried again.

A bucket that does not exist answers 404 as a missing object does; it is told apart, for it is no empty store.
"""

from __future__ import annotations

import contextlib
import os
import random
import re
import time
import uuid
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from trainlet.client.stores.keys import check_key
from trainlet.core.errors import PlatformError, UserError
from trainlet.core.protocols import ObjectInfo

_CHUNK = 16 << 20
RETRIES = 5  # by obstore, of what may be repeated as it is
TRIES = 6  # of a conditional PUT
FIRST_PAUSE_S = 0.05
TIMEOUT = "60s"  # of one request
NO_BUCKET = "NoSuchBucket"
METADATA = re.compile(r"/latest/(?:api/token|meta-data/iam)")  # where a machine with a role has its credentials
CODE = re.compile(r"<Code>\s*(\w+)\s*</Code>")  # of S3's answer


def place() -> tuple[str | None, str]:
    """Return the (endpoint, region) that the AWS_* variables name; None for AWS's own endpoint."""
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    return endpoint or None, os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or "us-east-1"


def connection(bucket: str, *, retries: int | None = None) -> Any:
    """Return obstore's view of a bucket, as the AWS_* variables say; raises UserError when they cannot be right."""
    from obstore.exceptions import BaseError
    from obstore.store import S3Store as ObstoreS3

    options: dict[str, Any] = {}
    endpoint, region = place()
    if endpoint:
        parts = urlsplit(endpoint)
        if parts.scheme not in ("http", "https") or not parts.hostname:  # obstore would panic
            raise UserError(
                f"s3://{bucket} cannot be opened: AWS_ENDPOINT_URL is {endpoint!r}, which is no http:// or https:// address. "
                "Correct it, or unset it for AWS itself."
            )
        options["endpoint"] = endpoint
        options["virtual_hosted_style_request"] = False
    try:
        return ObstoreS3(
            bucket,
            region=region,
            client_options={"allow_http": bool(endpoint and endpoint.startswith("http://")), "timeout": TIMEOUT},
            unsigned_payload=True,  # a sha256 of every byte, for a signature, costs more than the upload; packs have a blake3
            retry_config={
                "max_retries": RETRIES if retries is None else retries,
                "retry_timeout": timedelta(seconds=60),
            },
            **options,
        )
    except BaseError as error:
        raise UserError(
            f"s3://{bucket} cannot be opened: {str(error).splitlines()[0]}. Correct the AWS_* variables: AWS_ACCESS_KEY_ID and "
            "AWS_SECRET_ACCESS_KEY go together."
        ) from error


class S3Store:
    """A bucket and a prefix; credentials, region and endpoint from the usual AWS_* variables."""

    def __init__(self, bucket: str, prefix: str = "") -> None:
        self.url = f"s3://{bucket}/{prefix}".rstrip("/")
        self._bucket = bucket
        self._there = False  # whether the bucket is known to exist
        self._prefix = f"{prefix}/" if prefix else ""
        self._store = connection(bucket)
        self._writes = connection(bucket, retries=0)  # retries of a conditional PUT are ours: see `create`

    def __repr__(self) -> str:
        return f"S3Store({self.url!r})"

    def create(self, key: str, data: bytes | memoryview) -> None:
        import obstore
        from obstore.exceptions import AlreadyExistsError, BaseError, PermissionDeniedError, UnauthenticatedError

        body, ambiguous = obstore.Bytes(data), False  # no copy: a pack is uploaded from where it was staged
        for attempt in range(TRIES):
            try:
                obstore.put(self._writes, self._name(key), body, mode="create", use_multipart=False)
                return
            except AlreadyExistsError as error:
                if self.exists(key):
                    if ambiguous and self.get(key) == data:
                        return
                    raise FileExistsError(key) from error
                failure: BaseError = error
            except (FileNotFoundError, PermissionDeniedError, UnauthenticatedError) as error:
                raise self._failed(key, error) from error
            except BaseError as error:
                ambiguous, failure = True, error
            if attempt + 1 == TRIES:
                raise self._failed(key, failure) from failure
            time.sleep(random.uniform(0, FIRST_PAUSE_S * 3**attempt))

    def put_file(self, key: str, path: Path) -> None:
        import obstore

        if self.exists(key):
            return
        with self._errors(key), path.open("rb") as file:
            obstore.put(self._store, self._name(key), file, chunk_size=_CHUNK)

    def get(self, key: str) -> bytes:
        import obstore

        with self._errors(key):
            return bytes(obstore.get(self._store, self._name(key)).bytes())

    def get_range(self, key: str, start: int, end: int) -> bytes:
        import obstore

        if end <= start:
            return b""
        with self._errors(key):
            return bytes(obstore.get_range(self._store, self._name(key), start=start, end=end))

    def get_file(self, key: str, path: Path) -> None:
        import obstore

        temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with self._errors(key), temporary.open("xb") as file:
                for chunk in obstore.get(self._store, self._name(key)).stream(min_chunk_size=_CHUNK):
                    file.write(chunk)
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)

    def exists(self, key: str) -> bool:
        import obstore

        try:
            with self._errors(key):
                obstore.head(self._store, self._name(key))
        except FileNotFoundError:
            if not self._there:  # the answer to a HEAD has no body, so it does not say whether the bucket is missing
                next(self.list(key, 1), None)
                self._there = True
            return False
        return True

    def list(self, prefix: str, limit: int | None = None) -> Iterator[ObjectInfo]:
        import obstore

        folder, _, _ = prefix.rpartition("/")
        start = f"{self._prefix}{folder}".rstrip("/")
        found = 0
        with self._errors(prefix):
            for batch in obstore.list(self._store, prefix=start or None, chunk_size=min(limit or 1000, 1000)):
                for item in batch:
                    key = item["path"][len(self._prefix) :]
                    if not key.startswith(prefix):
                        continue
                    yield ObjectInfo(key, int(item["size"]))
                    found += 1
                    if limit is not None and found >= limit:
                        return

    def delete(self, key: str) -> None:
        import obstore

        with contextlib.suppress(FileNotFoundError), self._errors(key):
            obstore.delete(self._store, self._name(key))

    def local_path(self, key: str) -> Path | None:
        return None

    def _name(self, key: str) -> str:
        return self._prefix + check_key(key)

    @contextlib.contextmanager
    def _errors(self, key: str) -> Iterator[None]:
        from obstore.exceptions import BaseError

        try:
            yield
        except FileNotFoundError as error:
            if NO_BUCKET in str(error):
                raise self._failed(key, error) from error
            raise FileNotFoundError(key) from error
        except BaseError as error:
            raise self._failed(key, error) from error

    def _failed(self, key: str, error: Exception) -> PlatformError:
        text = str(error) or type(error).__name__
        where = f"The store {self.url} failed on {key!r}"
        endpoint = place()[0] or "AWS"
        if NO_BUCKET in text:
            return PlatformError(
                f"{where}: the bucket {self._bucket!r} does not exist at {endpoint}. Create it, or correct the store's URL, "
                "AWS_ENDPOINT_URL or AWS_REGION."
            )
        if METADATA.search(text):
            return PlatformError(
                f"{where}: there are no credentials for {endpoint}. Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (and "
                "AWS_SESSION_TOKEN where they are temporary), or give this machine or pod a role; profiles in ~/.aws are "
                f"not read. Nothing was read or written. ({text.splitlines()[0]})"
            )
        code = CODE.search(text)
        said = text.splitlines()[0] + (f" ({code[1]})" if code and code[1] not in text.splitlines()[0] else "")
        return PlatformError(f"{where}: {said}. Check the bucket and the AWS_* variables.")
