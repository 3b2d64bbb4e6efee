"""Who may log in: users, tokens, and the first of them."""
