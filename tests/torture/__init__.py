"""Long runs that CI has no time for: `python -m tests.torture --rounds 1000`."""
