"""Ports of this machine for servers that a test starts."""

import random
import socket

PORTS = range(15_000, 32_768)
"""Below the ports that Linux gives to whoever asks for any: from those, another process may take a port before its
server listens."""


def free_ports(count: int) -> list[int]:
    """So many different ports that nothing listens on now."""
    found: list[int] = []
    for port in random.SystemRandom().sample(PORTS, len(PORTS)):
        if len(found) == count:
            break
        with socket.socket() as tried:
            try:
                tried.bind(("", port))
            except OSError:
                continue
        found.append(port)
    assert len(found) == count, f"{count} ports are wanted, {len(found)} are free"
    return found
