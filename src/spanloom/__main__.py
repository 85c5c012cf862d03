"""`python -m spanloom`."""

from spanloom.cli import main

main()
