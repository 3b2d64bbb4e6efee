"""How what was measured comes onto a page."""
