"""A group as everybody reads it: the clients, the rows, the pages and the doctor. Pure.

A coordinator answers with a `DescribeReply`, which the wire carries as `DescribedGroup`; `group_mapper` alone reads
that and makes the values of `groups`. What is shown is a function of those.
"""
