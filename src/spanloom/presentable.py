"""Hides credentials in URLs and connection strings before errors, logs, manifests and reports show them.

In: any text. Out: the same text with `***` in place of each credential.

    postgresql://me:PW@db/traces?sslpassword=PW  →  postgresql://me:***@db/traces?sslpassword=***
    s3://KEY:SECRET@bucket/key                   →  s3://***@bucket/key
    host=db user=me password='P W'               →  host=db user=me password=***
    s3:/KEY:SECRET@bucket, s3%3A%2F%2FKEY%3A…    →  s3:/***@bucket: as a path, or percent-encoded, too
    Authorization: Bearer TOKEN                  →  Authorization: ***: a proxy's error page may repeat a request

Too much is hidden rather than too little: of a password that holds `@` or `/` unescaped, all up to the last `@`.
Names of files with passwords (`passfile`, `sslkey`, `service`) are shown: what is in them is read by libpq alone.
"""

import re

HIDDEN = "***"

# Repetitions have an end where they may begin anywhere: texts may have megabytes of what only looks like a URL.
_STORES = r"(?:s3[an]?|gs|gcs|minio)"
_BEGIN = rf"(?P<scheme>(?i:\b{_STORES}(?=:[/\\]*))|[A-Za-z][A-Za-z0-9+.-]{{0,40}}(?=://)|[A-Za-z][A-Za-z0-9+.-]{{1,40}}(?=:/))(?P<sign>:(?://|[/\\]*))"
"""A path in place of a URL has one slash, or backslashes."""
_URL = re.compile(rf"{_BEGIN}(?P<rest>\S*)")
_URL_ALONE = re.compile(rf"\s*{_BEGIN}(?P<rest>(?:(?!:\s)[^\r\n])*)", re.DOTALL)
"""A text that is a URL and nothing else: SQLAlchemy takes a password with blanks."""

_USER_AND_PASSWORD = re.compile(r"(?P<user>[^:/?#@]*):(?P<password>.*)@", re.DOTALL)
_AUTHORITY = re.compile(r"(?P<user>[^/?#]*)@")
_QUERY = re.compile(r"(?P<mark>[?&;#])(?P<name>[^=&;#\s?]+)=(?P<value>[^&\s]*)")

_ACCESS = (
    r"(?:password|passwd|passphrase|pwd|secret|secret[_-]?key|secret[_-]?access[_-]?key|session[_-]?token|"
    r"security[_-]?token|(?:access|auth|refresh|sas)[_-]?token|(?:account|api|private)[_-]?key|"
    r"scram[_-](?:client|server)[_-]key|x-(?:amz|goog)-(?:signature|credential))"
)
_NAMED = re.compile(
    rf"""(?P<name>['"]?[\w.-]{{0,40}}{_ACCESS}['"]?)(?P<is>\s*=\s*|(?<=['"])\s*:\s*|>)"""
    r"""(?P<value>(?:'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|\\.|\S)+)""",
    re.IGNORECASE | re.DOTALL,
)
_IN_QUERY = re.compile(
    rf"[\w.-]*{_ACCESS}|pass|key|token|api[_-]?key|access[_-]?key(?:[_-]?id)?|aws[_-]?access[_-]?key[_-]?id|"
    r"sig|awsaccesskeyid|x-(?:amz|goog)-(?:signature|credential|security-token)|signature|credentials?|connection[_-]?string",
    re.IGNORECASE,
)
_SHOWS_USER = ("postgres", "mysql", "mariadb", "sqlite", "ssh", "sftp", "oracle", "mssql", "jdbc")
"""Schemes whose user is a name. Of others, stores among them, it may be a key or a token."""

_HEADER = re.compile(
    r"(?P<name>\b(?:authorization|x-(?:amz|goog)-security-token|cookie)['\"]?\s*:\s*['\"]?)[^\r\n'\"<]+|"
    r"(?P<bearer>\bbearer\s+)[\w.~+/=-]{16,}|"
    r"(?P<begin>-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----).*?(?=-----END|\Z)",
    re.IGNORECASE | re.DOTALL,
)
"""What headers of a request, or a file of a key, look like."""

_MAYBE = re.compile(
    rf":/|=|\b{_STORES}:|%(?:25)*3[AD]|{_ACCESS}|authorization|bearer|cookie|PRIVATE KEY", re.IGNORECASE
)
_WORD = re.compile(r"\S+")
_ENCODED_SIGN = re.compile(r"[A-Za-z0-9]%3A(?:/|%2F|%5C)", re.IGNORECASE)
_ENCODED_QUERY = re.compile(
    r"(?P<mark>%(?:25){0,3}(?:3F|26|23|3B))(?P<name>[\w.-]{1,60})(?P<is>=|%(?:25){0,3}3D)"
    r"(?P<value>(?:(?!%(?:25){0,3}26)[^&\s\"'])+)",
    re.IGNORECASE,
)
_SHORTEST = 3
_OF_STORE = re.compile(_STORES, re.IGNORECASE)


def presentable(text: str, secrets: frozenset[str] = frozenset()) -> str:
    """The text without passwords, keys and tokens. `secrets`: values that are hidden wherever they are."""
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, HIDDEN)
    if _MAYBE.search(text) is None:
        return text
    text = _HEADER.sub(lambda found: f"{found['name'] or found['bearer'] or found['begin']}{HIDDEN}", text)
    if "%" in text:
        text = _ENCODED_QUERY.sub(_shown_encoded_query, _WORD.sub(_shown_encoded_url, text))
    return _shown(text)


def _shown(text: str) -> str:
    """The text without what gives access as it is written, without percent-encoding."""
    if (alone := _URL_ALONE.fullmatch(text)) is not None:
        return _shown_url(alone)
    pieces, at = [], 0
    url, named = _URL.search(text), _NAMED.search(text)
    while url is not None or named is not None:
        # A URL may hold `password=`, and the value of `password=` may hold `://`: what begins first counts.
        if named is None or (url is not None and url.start() <= named.start()):
            assert url is not None
            pieces += [text[at : url.start()], _shown_url(url)]
            at = url.end()
        else:
            pieces += [text[at : named.start()], f"{named['name']}{named['is']}{HIDDEN}"]
            at = named.end()
        if url is not None and url.start() < at:
            url = _URL.search(text, at)
        if named is not None and named.start() < at:
            named = _NAMED.search(text, at)
    return "".join([*pieces, text[at:]])


def secrets_of(url: str) -> frozenset[str]:
    """The passwords in a URL or connection string, as written and decoded, for `presentable`.

    A driver may quote what it took for a host: the parts of a password that holds `@` or `/` are among them.
    """
    written: list[str] = []
    rest = url.partition("://")[2]
    if (user := _USER_AND_PASSWORD.match(rest)) is not None:
        password = user["password"]
        written += [password, *re.split("[@/?#]", password)]
    written += [query["value"] for query in _QUERY.finditer(rest) if _gives_access(query)]
    if not rest:
        written += [named["value"].strip("'\"") for named in _NAMED.finditer(url)]
    forms = {form for secret in written for form in (secret, _decoded(secret), _decoded(secret.replace("+", " ")))}
    return frozenset(form for form in forms if len(form) >= _SHORTEST)


def is_store_with_access(text: str) -> bool:
    """Whether a text is the address of an object or of a server, and holds keys or tokens."""
    return _ADDRESS.match(text) is not None and presentable(text) != text


_ADDRESS = re.compile(rf"[\s'\"./]*(?:[a-z]+::)?(?:{_STORES}|https?|hf|ftp)(?::|%3A)", re.IGNORECASE)


def _shown_encoded_url(word: re.Match[str]) -> str:
    text = word.group()
    if _ENCODED_SIGN.search(text) is None:
        return text
    plain = _decoded(text)
    return shown if (shown := _shown(plain)) != plain else text


def _shown_encoded_query(query: re.Match[str]) -> str:
    if _IN_QUERY.fullmatch(query["name"]) is None:
        return query.group()
    return f"{query['mark']}{query['name']}{query['is']}{HIDDEN}"


def _shown_url(url: re.Match[str]) -> str:
    text, scheme, rest = url.group(), url["scheme"].lower(), url["rest"]
    before = text[: len(text) - len(rest)]
    by_name = scheme.startswith(_SHOWS_USER)
    if _OF_STORE.fullmatch(scheme) is not None:
        # A bucket has neither `@` nor `:`; of further slashes the client makes nothing.
        slashes = rest[: len(rest) - len(rest.lstrip("/\\"))]
        before, rest = before + slashes, rest[len(slashes) :]
        authority = re.split(r"[/\\?#]", rest, maxsplit=1)[0]
        if "@" in authority and ":" in authority.rpartition("@")[2]:
            rest = HIDDEN + rest[len(authority) :]
    # Of http a `/` ends the part with the password, for every client; others take it for a part of the password.
    user = None if scheme in ("http", "https") else _USER_AND_PASSWORD.match(rest)
    if user is not None:
        rest = (f"{user['user']}:{HIDDEN}@" if by_name else f"{HIDDEN}@") + rest[user.end() :]
    elif not by_name and (authority := _AUTHORITY.match(rest)) is not None:
        rest = f"{HIDDEN}@{rest[authority.end() :]}"
    return before + _QUERY.sub(_shown_query, rest)


def _shown_query(query: re.Match[str]) -> str:
    return f"{query['mark']}{query['name']}={HIDDEN if _gives_access(query) else query['value']}"


def _gives_access(query: re.Match[str]) -> bool:
    """Whether a parameter is a secret, or holds one: `odbc_connect=…%3BPWD%3D…`."""
    value = _decoded(query["value"])
    return _IN_QUERY.fullmatch(_decoded(query["name"])) is not None or (
        value != query["value"] and presentable(value) != value
    )


def _decoded(text: str) -> str:
    """Percent-encoding taken back. `urllib` is not imported here: errors are of the pure modules."""
    return _ENCODED.sub(lambda run: bytes.fromhex(run.group().replace("%", "")).decode("utf-8", "replace"), text)


_ENCODED = re.compile(r"(?:%[0-9A-Fa-f]{2})+")
