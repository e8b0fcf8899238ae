"""
The jobs that `tailrace pipeline` runs.

    archive       messages to a table, one row each
    materialize   streams of JSON objects to a typed table
    replay        an archived table to streams
    mirror        the streams of one server to another
    fold          the state of each stream, published as its snapshot
"""
