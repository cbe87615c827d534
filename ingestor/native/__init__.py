"""Takes records in without a Python object for any of them: `intake.c`, where a C compiler was there to build it.

`library` loads it, `room` is the memory that it fills, `intake` leads partitions to it, `build` compiles it.
"""
