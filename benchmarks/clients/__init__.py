"""
The clients that are measured, each in its own process.

A client is a script. Its arguments are a mode, a work, the URL of a stream, a number of messages
and an example message. It prints one line of JSON: the messages, the seconds, and in `note` what it
cannot do. For `follow`, it first prints `ready` and waits for messages.

    produce    append a number of messages and wait until all are stored
    read       read a closed stream from its beginning to its end
    follow     read an open stream while another client writes to it

Other clients are installed beside this file, by a run of full or quick size or by
`python -m benchmarks.clients`. A smoke run uses those that are installed.
"""
