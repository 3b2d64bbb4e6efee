"""What a node writes to its log: lines, repeats counted, failures."""
