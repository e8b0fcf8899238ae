"""
Clients under measurement, each in a process of its own.

A client is a script that is called with a mode, a work, the URL of a stream, a number of messages
and an example of one. It prints one line of JSON: the messages, the seconds, and in `note` what it
cannot do. To follow, it first prints `ready` and waits for messages.

    produce    append so many messages and wait until all are stored
    read       read a closed stream from its beginning to its end
    follow     read an open stream while somebody writes to it

What is not ours is installed beside this file: by a run of full or quick size, or by
`python -m benchmarks.clients`. A smoke run uses what is there.
"""
