"""Groups that another broker coordinates, read from the records that it keeps of them (docs/design/watch.md)."""
