"""DescribeAcls, CreateAcls, DeleteAcls: access control lists, as Kafka's own tools look at them and change them."""
