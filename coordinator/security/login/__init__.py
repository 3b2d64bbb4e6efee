"""How somebody shows who they are: conversations of SASL, passwords, tokens. Pure: randomness, clocks and work off the
loop are brought by whoever holds the conversation."""
