"""No form of a URL or connection string shows what gives access, and what gives none stays."""

from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spanloom.errors import SpanloomError, StorageError
from spanloom.presentable import presentable, secrets_of
from spanloom.storage.uri import parse_uri
from support.nightly import drawn, nightly

PW = "S3cr3t"
SHOWN = {
    # SQLAlchemy
    f"postgresql://u:{PW}@h/db": "postgresql://u:***@h/db",
    f"postgresql+psycopg://u:{PW}@h:5432/db?sslmode=require": "postgresql+psycopg://u:***@h:5432/db?sslmode=require",
    f"postgresql://u:{PW}@[::1]:5432/db": "postgresql://u:***@[::1]:5432/db",
    f"postgresql://u:{PW} with blanks@h/db": "postgresql://u:***@h/db",
    f"postgresql://u:a@{PW}@h/db": "postgresql://u:***@h/db",
    f"postgresql://u:a/{PW}?#@h/db": "postgresql://u:***@h/db",
    f"postgresql://:{PW}@h/db": "postgresql://:***@h/db",
    f"mssql+pyodbc:///?odbc_connect=DRIVER%3Dx%3BUID%3Du%3BPWD%3D{PW}": "mssql+pyodbc:///?odbc_connect=***",
    # libpq: parameters, several hosts, percent-encoding, files
    f"postgresql://h/db?user=u&password={PW}": "postgresql://h/db?user=u&password=***",
    f"postgresql:///db?password={PW}&host=/tmp&sslpassword={PW}": (
        "postgresql:///db?password=***&host=/tmp&sslpassword=***"
    ),
    f"postgres://u:{PW}@h1:1,h2:2/db?target_session_attrs=any": "postgres://u:***@h1:1,h2:2/db?target_session_attrs=any",
    f"postgresql://u:%53{PW}%40@h/db": "postgresql://u:***@h/db",
    f"postgresql://h/db?pass%77ord={PW}": "postgresql://h/db?pass%77ord=***",
    f"postgresql://h/db?PASSWORD={PW}": "postgresql://h/db?PASSWORD=***",
    f"postgresql://h/db?oauth_client_secret={PW}": "postgresql://h/db?oauth_client_secret=***",
    f"postgresql://h/db?scram_client_key={PW}": "postgresql://h/db?scram_client_key=***",
    f"host=h user=u password={PW} dbname=d": "host=h user=u password=*** dbname=d",
    f"password='a {PW}\\' b' host=h": "password=*** host=h",
    f"host=h password = {PW}": "host=h password = ***",
    f"sslpassword={PW}\\ more host=h": "sslpassword=*** host=h",
    f"password=a,{PW} host=h": "password=*** host=h",
    f"password='a'{PW} host=h": "password=*** host=h",
    f"password=it's{PW} host=h": "password=*** host=h",
    f"PGPASSWORD={PW} psql": "PGPASSWORD=*** psql",
    f"{{'user': 'u', 'password': '{PW}'}}": "{'user': 'u', 'password': ***",
    # fsspec and stores
    f"s3://KEY:{PW}@bucket/key": "s3://***@bucket/key",
    f"s3://KEY:a/{PW}+b@bucket/key": "s3://***@bucket/key",
    f"s3://{PW}@bucket": "s3://***@bucket",
    f"simplecache::s3://KEY:{PW}@bucket/key": "simplecache::s3://***@bucket/key",
    f"https://u:{PW}@h/x@y": "https://***@h/x@y",
    f"https://{PW}@h/x": "https://***@h/x",
    f"https://h/x?X-Amz-Credential={PW}&X-Amz-Signature={PW}&X-Amz-Date=1": (
        "https://h/x?X-Amz-Credential=***&X-Amz-Signature=***&X-Amz-Date=1"
    ),
    f"https://h/x?sig={PW}&sv=1": "https://h/x?sig=***&sv=1",
    f"s3:/KEY:{PW}@bucket/key": "s3:/***@bucket/key",
    f"s3:KEY:{PW}@bucket/key": "s3:***@bucket/key",
    f"S3:///KEY:{PW}@bucket/key": "S3:///***@bucket/key",
    f"s3:\\\\KEY:{PW}@bucket": "s3:\\\\***@bucket",
    f"s3://bucket@KEY:{PW}/key": "s3://***/key",
    f"gs:/{PW}@bucket": "gs:/***@bucket",
    f"the folder s3%3A%2F%2FKEY%3A{PW}%40bucket%2Fkey is missing": "the folder s3://***@bucket/key is missing",
    f"http://h/b/k%3FX-Amz-Signature%3D{PW}%26a%3D1": "http://h/b/k%3FX-Amz-Signature%3D***%26a%3D1",
    f"http://h/b/k%3Btoken%3D{PW}": "http://h/b/k%3Btoken%3D***",
    f"http://h/b/k%253FX-Amz-Signature%3D{PW}": "http://h/b/k%253FX-Amz-Signature%3D***",
    f"s3://bucket/key?AWSAccessKeyId={PW}&Signature={PW}": "s3://bucket/key?AWSAccessKeyId=***&Signature=***",
    f"AWS_SECRET_ACCESS_KEY={PW}": "AWS_SECRET_ACCESS_KEY=***",
    # a request that an error page repeats
    f"denied: X-Amz-Security-Token: {PW}": "denied: X-Amz-Security-Token: ***",
    f"Authorization: Bearer {PW}\nHost: h": "Authorization: ***\nHost: h",
    f"{{'authorization': 'AWS4-HMAC-SHA256 Credential=a/b, Signature={PW}'}}": "{'authorization': '***'}",
    f"the header Bearer {PW}{PW}{PW} is old": "the header Bearer *** is old",
    f"Cookie: session={PW}; a=b": "Cookie: ***",
    f"<SessionToken>{PW}</SessionToken> <a>": "<SessionToken>*** <a>",
    f"refresh_token={PW} api_key={PW}": "refresh_token=*** api_key=***",
    f"-----BEGIN RSA PRIVATE KEY-----\n{PW}\n{PW}\n-----END": "-----BEGIN RSA PRIVATE KEY-----***-----END",
    # within a text
    f"'postgresql://u:{PW}@h/db' is no path": "'postgresql://u:***@h/db' is no path",
    f"postgresql://u:{PW}@h/db: no answer from a@b": "postgresql://u:***@h/db: no answer from a@b",
    f"host=h password={PW}://{PW} user=u": "host=h password=*** user=u",
    f"host=h password='{PW} http://{PW}' user=u": "host=h password=*** user=u",
    f"postgresql://u@h/db failed: password={PW} host=h": "postgresql://u@h/db failed: password=*** host=h",
}
UNCHANGED = [
    "postgresql://u@h/db",
    "postgresql://h/db?passfile=/home/me/.pgpass&sslkey=/k&service=s&servicefile=/f",
    "passfile=/home/me/.pgpass service=s user=u",
    "sqlite:////tmp/a b@c:d.sqlite",
    "s3://bucket/a:b@c?versionId=1",
    "gs://bucket/key",
    "s3://bucket//key",
    "gs:/bucket/key",
    "of s3: a@b, of gs: c@d",
    "a%3Ab and 100%25",
    "/data/s3/a@b:c",
    "http://127.0.0.1:5000/bucket/a@b",
    "[Errno 2] No such file or directory: 'a=b'",
    'connection to server at "h", port 5432 failed: FATAL: password authentication failed for user "u"',
    "a bearer of news; the token=200002",
    "no authorization",
    "give --token-file FILE or set SPANLOOM_SERVICE_TOKEN",
    "",
]


@pytest.mark.parametrize("text", SHOWN)
def test_what_gives_access_is_hidden(text: str) -> None:
    assert presentable(text) == SHOWN[text]
    assert presentable(presentable(text)) == presentable(text)


@pytest.mark.parametrize("text", UNCHANGED)
def test_what_gives_none_is_shown(text: str) -> None:
    assert presentable(text) == text


@given(st.text(st.characters(codec="utf-8", exclude_characters="*"), min_size=3, max_size=20))
def test_no_password_is_shown_however_it_is_spelled(password: str) -> None:
    secret = f"{PW}{password}{PW}"
    encoded = quote(secret, safe="")
    for url in (
        f"postgresql://u:{encoded}@h/db",
        f"postgresql://h/db?user=u&password={encoded}",
        f"see postgresql://h1,h2/db?sslpassword={encoded} for more",
        f"s3://KEY:{encoded}@bucket/key",
    ):
        assert PW not in presentable(url)
        assert PW not in presentable(f"the host {secret} or {encoded} is not known", secrets_of(url))
    escaped = secret.replace("\\", "\\\\").replace("'", "\\'")
    assert PW not in presentable(f"host=h password='{escaped}' user=u")


@pytest.mark.parametrize(
    "unit",
    [
        *("a", "a.", "a:", "?", ";", "#a=", "&a=%3F", "'", "password='", 'password="', "a://", "@"),
        *("bearer ", "authorization:", "<secret>", "-----BEGIN PRIVATE KEY-----"),
    ],
)
@pytest.mark.parametrize("begin", ["", nightly("a://"), "a://?", nightly("a b://c:")])
def test_long_texts_take_no_longer_than_they_are(unit: str, begin: str) -> None:
    """Each ends in well under a second; with time that grows by the square of the length none of them would."""
    presentable(begin + unit * (drawn(1_000_000, 300_000) // len(unit)))


def test_errors_hide_by_themselves() -> None:
    url = f"postgresql://h/db?password={PW}"
    fault = SpanloomError(f"no answer from {url}", where=url, remedy=f"look at {url}")
    assert PW not in str(fault) + str(fault.what) + str(fault.where) + str(fault.remedy)


@pytest.mark.parametrize(
    "uri", [f"s3://KEY:{PW}@bucket/key", f"s3://KEY:a/{PW}@bucket", f"gs://{PW}@bucket", f"x://u:{PW}@h"]
)
def test_a_uri_with_keys_is_refused_and_not_told(uri: str) -> None:
    with pytest.raises(StorageError) as refusal:
        parse_uri(uri)
    assert PW not in str(refusal.value)
