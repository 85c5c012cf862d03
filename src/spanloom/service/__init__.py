"""The HTTP application: what the routes of every family have around them. It knows no family.

defaults     address, largest bodies, times
application  routes of families → one ASGI application, with health, metrics and errors as JSON
access       the bearer token; without one, where the service may listen and under which names it answers
limits       bodies counted while they are read, one by one and all together, within a time
bodies       JSON weighed and counted before it is parsed
connections  how long a connection may wait for the head of a request
observed     request ids, one line of JSON a request, counters for Prometheus
answers      errors as JSON
streaming    answers that are made while they are sent
docs_page    what can be asked, as a page
serving      the application, run by uvicorn
"""
