"""What is the same for every door that listens: TLS, handshakes, sockets."""
