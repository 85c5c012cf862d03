"""The family over HTTP.

routes       traces, datasets, exports
requests     what clients send
pages        datasets and traces as pages
application  the service itself
"""
