"""What it costs that a node is looked at: heartbeats that are counted, and a scrape of very many series."""
