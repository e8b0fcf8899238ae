"""
Streams are tables, tables are streams: a PySpark data source, and the jobs built on it.

`format("tailrace")` needs no registration: Spark finds `pyspark_tailrace`. Everything here speaks
to servers through the client, over HTTP alone.
"""
