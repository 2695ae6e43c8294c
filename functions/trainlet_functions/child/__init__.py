"""What runs inside the child process: the user's code, and the little around it.

PID 1 never runs user code. A warm, single-threaded process (the nursery) has imported what the bundle imports and forks
a child per attempt and rank; the child talks to PID 1 through one pipe of JSON lines. This room must not know the
training API: outputs go to the store, everything else to PID 1.
"""
