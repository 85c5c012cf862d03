"""Chat templates rendered in a process of their own, with limits on time, memory and output.

A template is foreign code. Jinja's sandbox keeps it from Python's internals, not from endless loops, and a loop inside
of a C function cannot be interrupted. So each process that renders has one template process, started when it first
needs one. It ends with its parent.

    this process                      template process
    ChatTemplate.render      →        Jinja's sandbox: compile, render
    process.py: the deadline ←        text, marks, or what went wrong

process   the client: starts the process, holds the deadline, ends it
wire      requests and replies as bytes; the limits
serve     the template process: reads requests, renders, replies
sandbox   Jinja's sandbox with the functions that chat templates use
"""
