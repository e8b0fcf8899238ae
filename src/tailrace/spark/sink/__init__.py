"""
The sink of `format("tailrace")`: rows in, messages out, each stored once.

    shaping    columns of a DataFrame as rows to write, checked
    ordering   one order of them at every attempt, in bounded memory
    cutting    numbered requests
    bodies     their bytes
    lanes      several at once, in order for each stream
    sending    what the server says
"""
