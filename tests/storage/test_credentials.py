"""Clients that cannot be made, credentials that come late, objects that cannot be read, options that buckets demand."""

import json
import os
import re
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from spanloom.errors import SpanloomError, StorageError
from spanloom.storage.publishing import publish_file
from spanloom.storage.staging import find, stage_file, stage_folder
from spanloom.storage.stores.gcs import WHOLE
from spanloom.storage.stores.retry import StoreGivenUpError
from spanloom.storage.stores.s3 import PART
from spanloom.storage.uri import parse_uri
from support.object_stores import BUCKET, CREDENTIALS, REGION, Enter, Place, amazon_client
from support.stores import QuietServer
from support.stores.proxy import Proxy, Request

KEYS = {name.upper(): value for name, value in CREDENTIALS.items()}
SECRET = "hunter22hunter22"


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, s3_address: str) -> None:
    """No profile, role or key of whoever runs this."""
    for name in ("AWS_PROFILE", "KUBERNETES_SERVICE_HOST", *KEYS):
        monkeypatch.delenv(name, raising=False)
    for name, value in {
        "AWS_ENDPOINT_URL": s3_address,
        "AWS_DEFAULT_REGION": REGION,
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_CONFIG_FILE": str(tmp_path / "config"),
        "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "credentials"),
        "HOME": str(tmp_path),
    }.items():
        monkeypatch.setenv(name, value)


def process(command: str) -> str:
    return f"[default]\ncredential_process = {command}\n"


BAD: dict[str, tuple[dict[str, str], str, str]] = {
    "profile": ({"AWS_PROFILE": "nobody"}, "", "the profile 'nobody' is not in"),
    "torn configuration": (KEYS, "[default\nregion=x", "the AWS configuration cannot be read"),
    "no configuration": (KEYS, "\0\1binary", "the AWS configuration cannot be read"),
    "no process": ({}, process("/no/such/command"), "/no/such/command: No such file"),
    "process fails": ({}, process(f"sh -c 'echo password={SECRET} >&2; exit 3'"), "custom-process"),
    "process of junk": ({}, process("echo no JSON"), "what credential_process printed is not JSON"),
    "process with a quote": ({}, process("echo 'no end"), "No closing quotation"),
    "process of a version": ({}, process("""echo '{"Version": 9}'"""), "Unsupported version '9'"),
    "blank after the region": ({**KEYS, "AWS_DEFAULT_REGION": "us-east-1 "}, "", "'us-east-1 ' is not a region"),
    "blank region": ({**KEYS, "AWS_DEFAULT_REGION": " "}, "", "' ' is not a region"),
    "two words": ({**KEYS, "AWS_DEFAULT_REGION": "us east"}, "", "'us east' is not a region"),
    "half of the keys": ({"AWS_ACCESS_KEY_ID": "a"}, "", "missing: AWS_SECRET_ACCESS_KEY"),
    "line break": ({**KEYS, "AWS_SECRET_ACCESS_KEY": f"{SECRET}\n"}, "", "AWS_SECRET_ACCESS_KEY has a blank"),
    "no keys": ({}, "", "no AWS credentials were found"),
    "circle": (
        {},
        "[default]\nrole_arn=arn:aws:iam::1:role/x\nsource_profile=b\n"
        "[profile b]\nrole_arn=arn:aws:iam::1:role/y\nsource_profile=default\n",
        "Infinite loop",
    ),
    "no source": ({}, "[default]\nrole_arn=arn:aws:iam::1:role/x\nsource_profile=zz\n", '"zz"'),
    "no login": (
        {},
        "[default]\nsso_session=my\nsso_account_id=1\nsso_role_name=x\n"
        "[sso-session my]\nsso_region=us-east-1\nsso_start_url=https://x\n",
        "SSO Token",
    ),
    "retry mode": ({**KEYS, "AWS_RETRY_MODE": "wrong"}, "", "wrong"),
    "other host": ({"AWS_CONTAINER_CREDENTIALS_FULL_URI": "http://example.com/x"}, "", "Unsupported host"),
    "payer": ({**KEYS, "SPANLOOM_S3_REQUEST_PAYER": "me"}, "", "SPANLOOM_S3_REQUEST_PAYER is 'me'"),
    "encryption": ({**KEYS, "SPANLOOM_S3_SSE": "yes"}, "", "SPANLOOM_S3_SSE is 'yes'"),
    "key without kms": (
        {**KEYS, "SPANLOOM_S3_SSE": "AES256", "SPANLOOM_S3_SSE_KMS_KEY_ID": "k"}, "", "beside SPANLOOM_S3_SSE_KMS"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_a_client_that_cannot_be_made_is_one_error_with_cause_and_remedy(
    tmp_path: Path, enter: Enter, name: str
) -> None:
    environment, config, message = BAD[name]
    (tmp_path / "config").write_text(config)
    enter({**environment, "SPANLOOM_STORAGE_DEADLINE": "3600"})  # none is tried again
    with pytest.raises(StorageError) as caught:
        find(parse_uri(f"s3://{BUCKET}/key"))
    assert message in caught.value.what
    assert caught.value.remedy
    assert "AWS_ENDPOINT_URL" not in str(caught.value)
    assert SECRET not in str(caught.value)


class _Metadata(BaseHTTPRequestHandler):
    """The credentials of a pod, as its agent gives them; before `ready` it answers 503."""

    ready = 0.0

    def do_GET(self) -> None:
        late = time.monotonic() < type(self).ready
        keys = {"AccessKeyId": "test", "SecretAccessKey": "test", "Token": "t", "Expiration": "2999-01-01T00:00:00Z"}
        body = b"" if late else json.dumps(keys).encode()
        self.send_response(503 if late else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def agent(enter: Enter) -> Iterator[Callable[[float], None]]:
    """Starts an agent of a pod whose credentials are ready after so many seconds."""
    server = QuietServer(("127.0.0.1", 0), _Metadata)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()

    def start(seconds: float) -> None:
        _Metadata.ready = time.monotonic() + seconds
        enter({"AWS_CONTAINER_CREDENTIALS_FULL_URI": f"http://127.0.0.1:{server.server_address[1]}/credentials"})

    yield start
    server.shutdown()
    server.server_close()


@pytest.mark.slow
def test_credentials_that_come_late_are_waited_for(agent: Callable[[float], None], s3_address: str) -> None:
    client = amazon_client(s3_address)
    client.create_bucket(Bucket="late")
    client.put_object(Bucket="late", Key="key", Body=b"x")
    agent(8)
    stored = find(parse_uri("s3://late/key"))
    assert stored is not None
    assert stored.bytes == 1
    assert time.monotonic() > _Metadata.ready


def test_credentials_that_never_come_end_at_the_deadline_with_75(agent: Callable[[float], None], enter: Enter) -> None:
    enter({"SPANLOOM_STORAGE_DEADLINE": "5"})
    agent(3600)
    with pytest.raises(StoreGivenUpError, match="container-role") as caught:
        find(parse_uri("s3://late/key"))
    assert caught.value.exit_code == 75


def test_a_token_file_that_never_comes_ends_at_the_deadline_with_75(enter: Enter, tmp_path: Path) -> None:
    token = tmp_path / "token"
    enter({"AWS_WEB_IDENTITY_TOKEN_FILE": str(token), "AWS_ROLE_ARN": "arn:aws:iam::1:role/x"})
    enter({"SPANLOOM_STORAGE_DEADLINE": "2"})
    with pytest.raises(StoreGivenUpError, match=re.escape(str(token))) as caught:
        find(parse_uri("s3://late/key"))
    assert caught.value.exit_code == 75


@pytest.fixture
def bucket(enter: Enter, s3_address: str) -> str:
    client = amazon_client(s3_address)
    client.create_bucket(Bucket="rims")
    enter(KEYS)
    return "rims"


def test_an_archived_object_is_called_so(bucket: str, s3_address: str, tmp_path: Path) -> None:
    client = amazon_client(s3_address)
    client.put_object(Bucket=bucket, Key="cold/a.jsonl", Body=b"x", StorageClass="GLACIER")
    with pytest.raises(StorageError, match=r"archived \(storage class .*GLACIER.*\)\n.*\n.*restore"):
        stage_file(parse_uri(f"s3://{bucket}/cold/a.jsonl"), tmp_path / "a.jsonl")


@pytest.mark.parametrize("how", ["file", "folder"])
def test_a_key_that_begins_with_a_slash_is_called_so(bucket: str, s3_address: str, tmp_path: Path, how: str) -> None:
    amazon_client(s3_address).put_object(Bucket=bucket, Key="/data/a.jsonl", Body=b"x")
    with pytest.raises(StorageError, match=rf"begin with a slash.*\n  where: s3://{bucket}//data"):
        if how == "file":
            stage_file(parse_uri(f"s3://{bucket}//data/a.jsonl"), tmp_path / "a.jsonl")
        else:
            stage_folder(parse_uri(f"s3://{bucket}//data"), tmp_path / "data")


@pytest.mark.parametrize("size", [1, PART + 1])
def test_the_encryption_that_a_bucket_demands(
    bucket: str, s3_address: str, enter: Enter, tmp_path: Path, size: int
) -> None:
    enter({"SPANLOOM_S3_SSE": "aws:kms", "SPANLOOM_S3_SSE_KMS_KEY_ID": "alias/ours"})
    (tmp_path / "a").write_bytes(b"x" * size)
    publish_file(tmp_path / "a", parse_uri(f"s3://{bucket}/sse/{size}"))
    head = amazon_client(s3_address).head_object(Bucket=bucket, Key=f"sse/{size}")
    assert (head["ServerSideEncryption"], head["SSEKMSKeyId"]) == ("aws:kms", "alias/ours")


def test_every_request_says_who_pays(bucket: str, s3_address: str, enter: Enter, tmp_path: Path) -> None:
    """The proxy refuses a request that does not, as a bucket does whose owner does not pay."""
    proxy, asked = Proxy(s3_address), []

    def note(request: Request) -> None:
        asked.append((request.does, request.headers.get("x-amz-request-payer")))

    proxy.fault = note
    enter({"AWS_ENDPOINT_URL": proxy.address, "SPANLOOM_S3_REQUEST_PAYER": "requester"})
    for size in (1, PART + 1):
        (tmp_path / "a").write_bytes(b"x" * size)
        publish_file(tmp_path / "a", parse_uri(f"s3://{bucket}/payer/{size}"))
    stage_folder(parse_uri(f"s3://{bucket}/payer"), tmp_path / "read")
    proxy.close()
    assert {does for does, _ in asked} >= {"describe", "read", "list", "begin", "send", "finish"}
    assert {payer for _, payer in asked} == {"requester"}


def test_every_request_to_google_says_which_project_pays(gs_place: Place, enter: Enter, tmp_path: Path) -> None:
    proxy, asked = Proxy(gs_place.address), []
    proxy.fault = lambda request: asked.append((request.does, request.path))
    enter({**gs_place.through(proxy.address), "SPANLOOM_GS_BILLING_PROJECT": "ours"})
    for size in (1, WHOLE + 1):
        (tmp_path / "a").write_bytes(b"x" * size)
        publish_file(tmp_path / "a", gs_place.uri / f"payer/{size}")
    stage_folder(gs_place.uri / "payer", tmp_path / "read")
    proxy.close()
    assert {does for does, _ in asked} >= {"describe", "read", "list", "begin", "send"}
    assert [path for does, path in asked if "userProject=ours" not in path and "upload_id" not in path] == []


TORN: dict[str, str | None] = {
    "missing": None,
    "empty": "",
    "torn": '{"type": "service_account", "proj',
    "list": "[]",
    "other": "{}",
    "no key": '{"type": "service_account"}',
    "no PEM": json.dumps({"type": "service_account", "client_email": "a@b", "token_uri": "u", "private_key": SECRET}),
}


@pytest.mark.parametrize("name", TORN)
def test_a_key_file_for_google_that_is_missing_or_torn_is_named(
    tmp_path: Path, enter: Enter, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.delenv("STORAGE_EMULATOR_HOST", raising=False)
    path = tmp_path / "key.json"
    if (content := TORN[name]) is not None:
        path.write_text(content)
    enter({"GOOGLE_APPLICATION_CREDENTIALS": str(path)})
    with pytest.raises(SpanloomError, match=r"key file .*key\.json' of GOOGLE_APPLICATION_CREDENTIALS") as caught:
        find(parse_uri("gs://bucket/key"))
    assert SECRET not in str(caught.value)


def test_a_key_file_for_google_that_waits_for_a_writer(
    tmp_path: Path, enter: Enter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("STORAGE_EMULATOR_HOST", raising=False)
    os.mkfifo(tmp_path / "key.json")
    enter({"GOOGLE_APPLICATION_CREDENTIALS": str(tmp_path / "key.json")})
    with pytest.raises(SpanloomError, match=r"key file .*key\.json'.* it is no regular file"):
        find(parse_uri("gs://bucket/key"))


def test_places(place: Place) -> None:
    """With the ordinary environment the client is made as before."""
    assert find(place.uri / "nothing") is None
