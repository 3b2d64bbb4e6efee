"""`muster transactions`: what transactional producers have open, and what to do about one that hangs."""
