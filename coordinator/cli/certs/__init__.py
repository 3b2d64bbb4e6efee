"""`muster certs`: certificates for development, and what a PEM file holds."""
