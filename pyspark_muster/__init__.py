"""Lets Spark find the data source `muster` by itself: it imports every module whose name begins with `pyspark_`.

If one of those fails to import, Spark forgets all of them, so this one asks for nothing but pyspark.
"""

from muster.spark.source import MusterDataSource as DefaultSource

__all__ = ["DefaultSource"]
