"""
The sink of `format("tailrace")`: stores each row as a message, exactly once.

    columns            the columns of a DataFrame, checked and converted
    sorting            the same order of rows at every attempt, in bounded memory
    chunking           rows to numbered requests
    bodies             the bodies of requests
    parallel_sender    several requests at once, in order for each stream
    append_requests    sends a request, and interprets a refusal
    complete_input     detects that rows are missing
"""
