"""The family over HTTP.

routes       validation of samples, the schema, the registries
application  an application with these routes only
"""
