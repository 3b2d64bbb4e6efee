"""What nodes say to each other: the door, the link to another node's, and the words on it."""
