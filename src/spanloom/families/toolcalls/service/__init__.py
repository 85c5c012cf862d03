"""The family over HTTP.

routes       samples validated, the schema, the registries
application  the service alone
"""
