"""`muster simulate`: a dry run of an assignment."""
