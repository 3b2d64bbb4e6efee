"""Quotas as arithmetic: whose they are, what was used, how long to wait. Pure; the clock is passed in."""
