"""The family over HTTP.

routes       traces, datasets, exports
pages        datasets and traces as pages
application  the service itself
"""
