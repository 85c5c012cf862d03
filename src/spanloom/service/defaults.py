"""The defaults of a service with any routes: only constants, which commands read without fastapi."""

HOST, PORT = "127.0.0.1", 8000
BODY_MAX_BYTES = 1 << 20
"""Of one request, unless its family sets another limit."""
BODIES_MAX_BYTES = 64 << 20
"""Of all requests under way."""
HEADER_SECONDS = 10.0
"""From the connection, or the end of the last answer, to the end of a request's head, even if bytes arrive."""
BODY_SECONDS = 30.0
"""Time for a body, plus one second for each 64 KiB received."""
