"""The defaults of a service, whatever its routes: constants and nothing else, which commands read without fastapi."""

HOST, PORT = "127.0.0.1", 8000
BODY_MAX_BYTES = 1 << 20
"""Of one request, where its family says nothing else."""
BODIES_MAX_BYTES = 64 << 20
"""Of all requests under way."""
HEADER_SECONDS = 10.0
"""From the connection, or the end of the last answer, to the end of a request's head, whatever comes meanwhile."""
BODY_SECONDS = 30.0
"""A body has a second more for each 64 KiB that came."""
