"""Who may do what at Kafka's door: a layer round the handlers, imported only where somebody is asked who they are.

What a request asks of which names is the table's (`coordinator.security.rights`). `answer_shapes` says where answers
have room for a refusal, and `table_judges` makes judges from both. What no table can say is code, a file for each
family.
"""
