"""Certificates at work: read and checked, in contexts that change under way. Imported where a listener speaks TLS."""
