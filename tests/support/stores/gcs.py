"""A small Cloud Storage: the part of the JSON API that is used for objects, preconditions honoured.

In: requests. Out: what the real service answers, as far as it is documented: metadata, media with ranges, multipart
and resumable uploads with crc32c, `ifGenerationMatch` at the start and at the end of an upload, pages of listings.
"""

import base64
import hashlib
import json
import re
import threading
import urllib.parse
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any

import google_crc32c

from support.stores import QuietServer

PAGE = 7
"""Objects in a page of a listing: small, so that every listing of a dataset has several."""


@dataclass
class Stored:
    data: bytes
    generation: int
    metadata: dict[str, str]


@dataclass
class Session:
    bucket: str
    name: str
    metadata: dict[str, str]
    precondition: str | None
    crc32c: str | None
    data: bytearray = field(default_factory=bytearray)
    answer: dict[str, Any] | None = None


class Refusal(Exception):
    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status, self.message = status, message


class CloudStorage:
    """The server. `objects[bucket][name]` is what it holds; a bucket in `closed` may not be touched.

    `damage` lists names whose next upload is stored with a byte changed; of a piece that is not the last, no more than
    `keeps` bytes are kept; `log` has `(method, path, Range)` of requests.
    """

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, Stored]] = {}
        self.closed: set[str] = set()
        self.damage: list[str] = []
        self.keeps: int | None = None
        self.log: list[tuple[str, str, str | None]] = []
        self.sessions: dict[str, Session] = {}
        self.lock = threading.Lock()
        self._generation = 1000
        self._server = QuietServer(("127.0.0.1", 0), _handler(self))
        self.address = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def bucket(self, name: str) -> dict[str, Stored]:
        if name in self.closed:
            raise Refusal(403, "test@example.com does not have storage.objects access to the object.")
        if name not in self.objects:
            raise Refusal(404, "The specified bucket does not exist.")
        return self.objects[name]

    def check(self, bucket: str, name: str, precondition: str | None) -> None:
        standing = self.bucket(bucket).get(name)
        if precondition is not None and int(precondition) != (standing.generation if standing else 0):
            raise Refusal(412, "At least one of the pre-conditions you specified did not hold.")

    def put(self, session: Session) -> dict[str, Any]:
        data = bytes(session.data)
        if session.crc32c is not None and session.crc32c != crc32c(data):
            raise Refusal(400, f"Provided CRC32C {session.crc32c} doesn't match calculated CRC32C {crc32c(data)}.")
        with self.lock:
            self.check(session.bucket, session.name, session.precondition)
            if session.name in self.damage:
                self.damage.remove(session.name)
                data = bytes([data[0] ^ 1]) + data[1:]
            self._generation += 1
            self.bucket(session.bucket)[session.name] = Stored(data, self._generation, session.metadata)
            session.answer = self.resource(session.bucket, session.name)
        return session.answer

    def resource(self, bucket: str, name: str) -> dict[str, Any]:
        stored = self.bucket(bucket)[name]
        return {
            "kind": "storage#object",
            "bucket": bucket,
            "name": name,
            "size": str(len(stored.data)),
            "generation": str(stored.generation),
            "metageneration": "1",
            "updated": "2026-01-02T03:04:05.000Z",
            "crc32c": crc32c(stored.data),
            "md5Hash": base64.b64encode(hashlib.md5(stored.data).digest()).decode(),
            "metadata": stored.metadata,
        }


def crc32c(data: bytes) -> str:
    return base64.b64encode(google_crc32c.Checksum(data).digest()).decode()


def _two_parts(body: bytes, content_type: str) -> tuple[dict[str, Any], bytes]:
    """`multipart/related`: the resource as JSON, then the bytes."""
    boundary = b"--" + content_type.partition("boundary=")[2].strip('"').encode()
    described, media = body.removeprefix(boundary).split(b"\r\n" + boundary)[:2]
    return json.loads(described.partition(b"\r\n\r\n")[2]), media.partition(b"\r\n\r\n")[2]


def _handler(store: CloudStorage) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            pass

        def _handle(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            url = urllib.parse.urlsplit(self.path)
            query = {key: values[0] for key, values in urllib.parse.parse_qs(url.query).items()}
            store.log.append((self.command, urllib.parse.unquote(url.path), self.headers.get("Range")))
            try:
                route = re.fullmatch(r"(/upload|/download)?/storage/v1/b/([^/]+)/o(?:/(.+))?", url.path)
                if route is None:
                    raise Refusal(404, f"no such method: {self.path}")
                bucket, name = route[2], urllib.parse.unquote(route[3] or "")
                if route[1] == "/upload":
                    self._upload(bucket, query, body)
                elif self.command == "DELETE":
                    self._existing(bucket, name, query)
                    del store.objects[bucket][name]
                    self._answer(204, b"")
                elif not name:
                    self._list(bucket, query)
                elif query.get("alt") == "media" or route[1] == "/download":
                    self._media(self._existing(bucket, name, query))
                else:
                    self._existing(bucket, name, query)
                    self._json(store.resource(bucket, name))
            except Refusal as refusal:
                error = {"code": refusal.status, "message": refusal.message, "errors": []}
                self._json({"error": error}, refusal.status)

        do_GET = do_POST = do_PUT = do_DELETE = _handle

        def _existing(self, bucket: str, name: str, query: dict[str, str]) -> Stored:
            stored = store.bucket(bucket).get(name)
            if stored is None or query.get("generation", str(stored.generation)) != str(stored.generation):
                raise Refusal(404, f"No such object: {bucket}/{name}")
            return stored

        def _upload(self, bucket: str, query: dict[str, str], body: bytes) -> None:
            if "upload_id" in query:
                if query["upload_id"] not in store.sessions:
                    raise Refusal(404, "No such upload.")
                return self._chunk(store.sessions[query["upload_id"]], body)
            precondition = query.get("ifGenerationMatch")
            multipart = query["uploadType"] == "multipart"
            resource, media = _two_parts(body, self.headers["Content-Type"]) if multipart else (json.loads(body), b"")
            session = Session(
                bucket, resource["name"], resource.get("metadata", {}), precondition, resource.get("crc32c")
            )
            if multipart:
                session.data += media
                return self._json(store.put(session))
            store.check(bucket, resource["name"], precondition)
            identity = f"session-{len(store.sessions)}"
            store.sessions[identity] = session
            location = f"http://{self.headers['Host']}{self.path}&upload_id={identity}"
            return self._answer(200, b"", {"Location": location})

        def _chunk(self, session: Session, body: bytes) -> None:
            if session.answer is not None:  # finished, but the client did not hear of it
                return self._json(session.answer)
            part = re.fullmatch(r"bytes (?:\*|(\d+)-(\d+))/(\d+|\*)", self.headers["Content-Range"])
            assert part is not None
            if part[1] is not None and int(part[1]) <= len(session.data):  # what is there already is not taken again
                fresh = body[len(session.data) - int(part[1]) :]
                last = len(session.data) + len(fresh) == int(part[3])
                session.data += fresh if last else fresh[: store.keeps]
            if part[3] != "*" and len(session.data) == int(part[3]):
                return self._json(store.put(session))
            kept = {"Range": f"bytes=0-{len(session.data) - 1}"} if session.data else {}
            return self._answer(308, b"", kept)

        def _media(self, stored: Stored) -> None:
            total = len(stored.data)
            byte_range = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range") or "")
            hashes = {"X-Goog-Hash": f"crc32c={crc32c(stored.data)}", "X-Goog-Generation": str(stored.generation)}
            if byte_range is None:
                return self._answer(200, stored.data, hashes)
            first, last = int(byte_range[1]), min(int(byte_range[2] or total - 1), total - 1)
            if first >= total:
                return self._answer(416, b"", {"Content-Range": f"bytes */{total}"})
            content_range = {"Content-Range": f"bytes {first}-{last}/{total}"}
            return self._answer(206, stored.data[first : last + 1], hashes | content_range)

        def _list(self, bucket: str, query: dict[str, str]) -> None:
            with store.lock:
                names = sorted(name for name in store.bucket(bucket) if name.startswith(query.get("prefix", "")))
                names = [name for name in names if name > query.get("pageToken", "")]
                resources = [store.resource(bucket, name) for name in names[:PAGE]]
                page: dict[str, Any] = {"kind": "storage#objects", "items": resources}
            if len(names) > PAGE:
                page["nextPageToken"] = names[PAGE - 1]
            self._json(page)

        def _json(self, value: Any, status: int = 200) -> None:
            self._answer(status, json.dumps(value).encode(), {"Content-Type": "application/json"})

        def _answer(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
            self.send_response(status)
            for key, value in (headers or {}).items():
                self.send_header(key, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    return Handler
