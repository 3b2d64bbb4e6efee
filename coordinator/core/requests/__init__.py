"""Requests that mean the same to a group of any kind: positions, settings, views, fences and session streams."""
