"""One class for each kind of group, the table of kinds, and the function that applies each record."""
