"""The coordinator of transactional ids: which producer may write, which transactions are open, how each ends. Pure.

It knows neither groups nor logs: events come in, effects go out (docs/design/transactions.md, rules TX-C...).
"""
