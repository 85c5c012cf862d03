"""A task list as services of Docker Compose, for the smoke run: `spanloom tasks … | python docker/compose_of_list.py`.

In: the list as JSON on stdin, a prefix for the names of services, variables of each container. Out: a Compose file as
JSON on stdout, to be read beside compose.yaml. A service for each task; it starts when those before it have ended well.
"""

import argparse
import json
import sys
from typing import Any


def services_of(stages: list[dict[str, Any]], prefix: str, environment: dict[str, str]) -> dict[str, Any]:
    """The services by name: `PREFIX-STAGE`, or `PREFIX-STAGE-INDEX` where a stage has several tasks."""
    names = {
        stage["stage"]: [
            f"{prefix}-{stage['stage']}" + (f"-{index}" if stage["count"] > 1 else "")
            for index in range(stage["count"])
        ]
        for stage in stages
    }
    return {
        name: {
            "image": stage["image"],
            "command": [word.replace("{index}", str(index)) for word in stage["argv"]],
            "environment": environment,
            "depends_on": {
                before: {"condition": "service_completed_successfully"}
                for after in stage["after"]
                # Between two stages with a task for each shard, a task waits for that of its own shard.
                for before in (
                    names[after][index : index + 1] if stage["count"] > 1 < len(names[after]) else names[after]
                )
            },
            # What a cluster would forbid is forbidden here.
            "read_only": True,
            "cap_drop": ["ALL"],
            "security_opt": ["no-new-privileges:true"],
            "tmpfs": ["/tmp", "/scratch"],
        }
        for stage in stages
        for index, name in enumerate(names[stage["stage"]])
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="A task list as services of Docker Compose.")
    parser.add_argument("--prefix", required=True, help="what names of services begin with")
    parser.add_argument("--env", action="append", default=[], metavar="NAME=VALUE", help="of each container")
    options = parser.parse_args()
    environment = dict(word.split("=", 1) for word in options.env)
    services = services_of(json.load(sys.stdin)["stages"], options.prefix, environment)
    json.dump({"services": services}, sys.stdout, indent=1)


if __name__ == "__main__":
    main()
