"""`muster consumer-groups`: the flags, columns and sentences of Kafka's own group tool."""
