"""Object stores for tests, in this process: a Cloud Storage of our own that honours preconditions, and a proxy that
fails on purpose. The emulator of Google's API and moto's S3 are started by tests/storage/conftest.py."""
