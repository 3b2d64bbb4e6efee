"""Authorization of Kafka's requests: a layer in front of the handlers, imported only with an authorizer.

`coordinator.security.rights` has the rights that each request needs. `answer_shapes` says where answers have room for
a refusal, and `table_judges` makes judges from both tables. What no table can say is code, a file for each family.
"""
