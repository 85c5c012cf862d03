"""The digests of a push, as the lock that pins a pipeline: `python docker/lock.py METADATA REGISTRY VERSION`.

In: what `docker buildx bake --push --metadata-file METADATA` wrote. Out, on stdout: JSON, the name of each image in the
committed pipeline → the image that was pushed, by its digest. `make compile REGISTRY=…` reads it from dist/images.json.
"""

import json
import sys
from pathlib import Path
from typing import Any

COMMITTED = "ghcr.io/spanloom"


def lock(metadata: dict[str, Any], registry: str, version: str) -> dict[str, str]:
    """`metadata` is a map of bake's targets, each named as its image is without the `spanloom-` before it."""
    digests = {target: built["containerimage.digest"] for target, built in metadata.items() if is_pushed(built)}
    if not digests:
        raise SystemExit("bake's metadata names no digest: was anything pushed?")
    return {
        f"{COMMITTED}/spanloom-{target}:{version}": f"{registry}/spanloom-{target}@{digest}"
        for target, digest in sorted(digests.items())
    }


def is_pushed(built: object) -> bool:
    """Beside its targets bake lists warnings, under a name of its own."""
    return isinstance(built, dict) and "containerimage.digest" in built


if __name__ == "__main__":
    path, registry, version = sys.argv[1:]
    print(json.dumps(lock(json.loads(Path(path).read_bytes()), registry, version), indent=2))
