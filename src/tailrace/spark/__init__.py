"""
A PySpark data source for streams, and the jobs built on it.

`format("tailrace")` needs no registration: Spark finds `pyspark_tailrace`. All access to servers
goes through the client, over HTTP.
"""
