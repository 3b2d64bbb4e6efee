"""What an operator can do with a group: rules of their own, that the kinds of groups call by one line each."""
