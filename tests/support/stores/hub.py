"""A small server of the Hugging Face Hub's HTTP API for dataset repositories, written from its documentation.

Speaks what huggingface_hub asks for: the revision, paths-info, tree, resolve (with ranges, large files by a redirect),
and for uploads repos/create, preupload, the Git LFS batch and the commit. Not spoken: Xet, pull requests, deletions.
"""

import base64
import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

LFS = re.compile(r".*\.(parquet|arrow|bin|idx|zst|gz)")
"""The names whose files the Hub keeps as LFS objects, by the .gitattributes of a new dataset."""


def git_oid(data: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


@dataclass
class Repository:
    """`commits`: commit → path → bytes, in order; `branches`: name → commit."""

    private: bool = False
    gated: bool = False
    commits: dict[str, dict[str, bytes]] = field(default_factory=dict)
    branches: dict[str, str] = field(default_factory=dict)
    messages: list[str] = field(default_factory=list)

    def commit(self, files: dict[str, bytes], branch: str = "main", message: str = "") -> str:
        before = self.commits.get(self.branches.get(branch, ""), {})
        sha = hashlib.sha1(f"{len(self.commits)} {branch} {message}".encode()).hexdigest()
        self.commits[sha] = {**before, **files}
        self.branches[branch] = sha
        self.messages.append(message)
        return sha

    def files(self, revision: str) -> tuple[str, dict[str, bytes]] | None:
        sha = self.branches.get(revision, revision)
        return (sha, self.commits[sha]) if sha in self.commits else None


@dataclass
class Hub:
    """`token`: the one that private repositories need; `asked`: method and path of all requests; `damage`: path →
    how often its bytes are changed on the way; `failing`: how many requests are answered with 503 first."""

    address: str = ""
    token: str = "hf_" + "a" * 34
    repositories: dict[str, Repository] = field(default_factory=dict)
    objects: dict[str, bytes] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    damage: dict[str, int] = field(default_factory=dict)
    failing: int = 0

    def environment(self, *, token: bool = True) -> dict[str, str]:
        """The environment in which huggingface_hub finds this server."""
        named = {"HF_ENDPOINT": self.address, "HF_HUB_OFFLINE": "0", "HF_HUB_DISABLE_XET": "1"}
        return {
            **named,
            "HF_TOKEN": self.token if token else "",
            "HF_HUB_DISABLE_IMPLICIT_TOKEN": "0" if token else "1",
        }


def _entry(path: str, data: bytes) -> dict[str, Any]:
    entry = {"type": "file", "path": path, "size": len(data), "oid": git_oid(data)}
    if LFS.fullmatch(path):
        entry["lfs"] = {"oid": hashlib.sha256(data).hexdigest(), "size": len(data), "pointerSize": 130}
    return entry


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub: Hub

    def log_message(self, *_: Any) -> None:
        pass

    def _answer(self, status: int, body: bytes | dict[str, Any] | list[Any], **headers: str) -> None:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def _handle(self) -> None:
        hub, url = self.hub, urlsplit(self.path)
        path = unquote(url.path)
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        hub.asked.append(f"{self.command} {path}")
        if hub.failing:
            hub.failing -= 1
            return self._answer(503, {"error": "overloaded"})
        if path.startswith("/objects/"):  # the store behind a redirect, which needs no token
            return self._bytes(hub.objects[path.removeprefix("/objects/")], path)
        if self.command == "PUT" and path.startswith("/lfs/"):
            hub.objects[path.removeprefix("/lfs/")] = body
            return self._answer(200, b"")
        if path == "/api/validate-yaml":
            return self._answer(200, {"errors": [], "warnings": []})
        if path == "/api/repos/create":
            return self._create(json.loads(body))
        if (match := re.fullmatch(r"(?:/api)?/datasets/([^/]+/[^/.]+)(?:\.git)?(?:/(.+))?", path)) is None:
            return self._answer(404, {"error": "no such page"})
        name, rest = match[1], match[2] or "revision/main"
        repository = hub.repositories.get(name)
        allowed = self.headers.get("Authorization") == f"Bearer {hub.token}"
        if repository is None or (repository.private and not allowed):
            return self._answer(404 if allowed else 401, {"error": "Repository not found"}, X_Error_Code="RepoNotFound")
        if repository.gated and "/resolve/" in path:
            return self._answer(403, {"error": "gated"}, X_Error_Code="GatedRepo")
        kind, _, rest = rest.partition("/")
        if kind == "info":
            return self._lfs_batch(json.loads(body))
        revision, _, inner = rest.partition("/")
        if revision == "refs":
            revision, inner = "/".join(rest.split("/")[:3]), "/".join(rest.split("/")[3:])
        if (found := repository.files(revision)) is None:
            return self._answer(404, {"error": "Invalid rev id"}, X_Error_Code="RevisionNotFound")
        getattr(self, f"_{kind.replace('-', '_')}")(name, repository, *found, inner, body)
        return None

    do_GET = do_HEAD = do_POST = do_PUT = _handle

    def _create(self, wanted: dict[str, Any]) -> None:
        name = f"{wanted['organization']}/{wanted['name']}" if wanted.get("organization") else wanted["name"]
        if self.headers.get("Authorization") != f"Bearer {self.hub.token}":
            return self._answer(401, {"error": "Invalid username or password."})
        address = f"{self.hub.address}/datasets/{name}"
        if name in self.hub.repositories:
            return self._answer(409, {"error": "You already created this dataset repo", "url": address})
        private = wanted.get("private") or wanted.get("visibility") == "private"
        repository = self.hub.repositories[name] = Repository(private=bool(private))
        repository.commit({".gitattributes": b"*.parquet filter=lfs\n"})
        return self._answer(200, {"url": address, "id": name})

    def _revision(self, name: str, repository: Repository, sha: str, files: dict[str, bytes], *_: Any) -> None:
        siblings = [{"rfilename": path} for path in files]
        self._answer(200, {"id": name, "sha": sha, "private": repository.private, "siblings": siblings, "tags": []})

    def _paths_info(self, _: str, __: Repository, ___: str, files: dict[str, bytes], ____: str, body: bytes) -> None:
        if self.headers.get("Content-Type", "").startswith("application/json"):
            paths = json.loads(body)["paths"]
        else:
            paths = parse_qs(body.decode())["paths"]
        entries = [_entry(path, files[path]) for path in paths if path in files]
        entries += [
            {"type": "directory", "path": path, "oid": "0" * 40, "size": 0}
            for path in paths
            if any(each.startswith(f"{path}/") for each in files)
        ]
        self._answer(200, entries)

    def _tree(self, _: str, __: Repository, ___: str, files: dict[str, bytes], inner: str, ____: bytes) -> None:
        below = {path: data for path, data in sorted(files.items()) if not inner or path.startswith(f"{inner}/")}
        if inner and not below:
            return self._answer(404, {"error": "no such path"}, X_Error_Code="EntryNotFound")
        # Pages of two entries: a client that reads one page alone is found.
        query = parse_qs(urlsplit(self.path).query)
        first = int(query.get("cursor", ["0"])[0])
        entries = [_entry(path, data) for path, data in below.items()]
        more = {}
        if first + 2 < len(entries):
            address = f"{self.hub.address}{urlsplit(self.path).path}?recursive=True&cursor={first + 2}"
            more = {"Link": f'<{address}>; rel="next"'}
        return self._answer(200, entries[first : first + 2], **more)

    def _resolve(self, _: str, __: Repository, sha: str, files: dict[str, bytes], inner: str, ___: bytes) -> None:
        if inner not in files:
            return self._answer(404, {"error": "Entry not found"}, X_Error_Code="EntryNotFound", X_Repo_Commit=sha)
        if LFS.fullmatch(inner):
            oid = hashlib.sha256(files[inner]).hexdigest()
            self.hub.objects[oid] = files[inner]
            return self._answer(302, b"", Location=f"{self.hub.address}/objects/{oid}", X_Repo_Commit=sha)
        return self._bytes(files[inner], inner)

    def _bytes(self, data: bytes, path: str) -> None:
        if self.hub.damage.get(path, 0):
            self.hub.damage[path] -= 1
            data = bytes([data[0] ^ 1]) + data[1:]
        if (match := re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))) is None:
            return self._answer(200, data)
        first, end = int(match[1]), min(int(match[2] or len(data) - 1), len(data) - 1)
        return self._answer(206, data[first : end + 1], Content_Range=f"bytes {first}-{end}/{len(data)}")

    def _preupload(self, _: str, __: Repository, ___: str, ____: dict[str, bytes], _____: str, body: bytes) -> None:
        files = json.loads(body)["files"]
        modes = {True: "lfs", False: "regular"}
        self._answer(
            200,
            {
                "files": [
                    {
                        "path": file["path"],
                        "uploadMode": modes[bool(LFS.fullmatch(file["path"]))],
                        "shouldIgnore": False,
                        "oid": None,
                    }
                    for file in files
                ]
            },
        )

    def _lfs_batch(self, wanted: dict[str, Any]) -> None:
        objects = []
        for each in wanted["objects"]:
            actions = {"upload": {"href": f"{self.hub.address}/lfs/{each['oid']}", "header": {}}}
            there = each["oid"] in self.hub.objects
            objects.append({**each, "authenticated": True, **({} if there else {"actions": actions})})
        self._answer(200, {"transfer": "basic", "objects": objects})

    def _commit(
        self, name: str, repository: Repository, ___: str, ____: dict[str, bytes], _____: str, body: bytes
    ) -> None:
        files, message = {}, ""
        for line in body.splitlines():
            each = json.loads(line)
            value = each["value"]
            if each["key"] == "header":
                message = value["summary"]
            elif each["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif each["key"] == "lfsFile":
                data = self.hub.objects[value["oid"]]
                assert hashlib.sha256(data).hexdigest() == value["oid"]
                files[value["path"]] = data
        sha = repository.commit(files, message=message)
        address = f"{self.hub.address}/datasets/{name}/commit/{sha}"
        self._answer(200, {"success": True, "commitOid": sha, "commitUrl": address, "hookOutput": ""})


@contextmanager
def serving_hub() -> Iterator[Hub]:
    hub = Hub()
    handler = type("Handler", (_Handler,), {"hub": hub})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    hub.address = f"http://127.0.0.1:{server.server_address[1]}"
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
