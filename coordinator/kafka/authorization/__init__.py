"""Who may do what at Kafka's door: a layer round the handlers, imported only where somebody is asked who they are.

What a request asks of which names is the table's (`coordinator.security.rights`); here is where each API has its
names, and where its answers have room for a refusal. A file for each family, and `table.py` lists them all.
"""
