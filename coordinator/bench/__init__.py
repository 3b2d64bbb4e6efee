"""`muster bench coordinator`: what coordination costs, against peers and limits measured in the same run."""
