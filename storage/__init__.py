"""Record logs in Kafka's on-disk format, and a broker over them."""
