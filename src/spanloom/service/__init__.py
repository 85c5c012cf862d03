"""The HTTP application around the routes of all families. Independent of the family.

defaults     address, largest bodies, times
application  routes of families → one ASGI application, with health, metrics and errors as JSON
access       the bearer token; without one, the allowed addresses and host names
limits       limits of bodies: the size of each, of all together, and the time
bodies       JSON bodies: memory and items are estimated before parsing
work         work on bodies: a few threads, and a bound on what waits
connections  time limit for the head of a request
observed     request ids, one line of JSON per request, counters for Prometheus
answers      errors as JSON
streaming    streamed answers
docs_page    all requests, as a page
serving      the application, run by uvicorn
"""
