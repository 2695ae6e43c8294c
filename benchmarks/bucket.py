"""A bucket that lists: ListObjectsV2 over HTTP, with as many objects as one likes, none of which is there.

    python benchmarks/bucket.py 1000000

Prints its address. Keys are in order, and all came long ago; credentials are not looked at.
"""

from __future__ import annotations

import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

PART = 1000
_HEAD = '<?xml version="1.0" encoding="UTF-8"?><ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
_MADE = "<LastModified>2020-01-01T00:00:00.000Z</LastModified><StorageClass>STANDARD</StorageClass><Size>10</Size>"


class Bucket(BaseHTTPRequestHandler):
    """Answers listings; the token of the next part is the number that it begins with."""

    protocol_version = "HTTP/1.1"
    objects = 0

    def do_GET(self) -> None:
        """Tell a part of the listing."""
        asked = parse_qs(urlsplit(self.path).query)
        first = int(asked.get("continuation-token", ["0"])[0])
        last = min(first + PART, self.objects)
        items = "".join(
            f"<Contents><Key>images/{number:09d}.png</Key>{_MADE}<ETag>&quot;{number:032x}&quot;</ETag></Contents>"
            for number in range(first, last)
        )
        more = f"<NextContinuationToken>{last}</NextContinuationToken>" if last < self.objects else ""
        told = f"<IsTruncated>{'true' if more else 'false'}</IsTruncated><KeyCount>{last - first}</KeyCount>{more}"
        body = f"{_HEAD}<Name>bucket</Name>{told}{items}</ListBucketResult>".encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/xml")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


if __name__ == "__main__":
    Bucket.objects = int(sys.argv[1])
    with ThreadingHTTPServer(("127.0.0.1", 0), Bucket) as server:
        print(f"http://127.0.0.1:{server.server_port}", flush=True)
        server.serve_forever()
