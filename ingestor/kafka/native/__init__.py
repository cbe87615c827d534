"""What is done without a Python object for each record, in C, where a compiler was there to build it.

`intake` takes records in, `dictionary` holds repeated values once; `library` loads both, `build` compiles them.
"""
