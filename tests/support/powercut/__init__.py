"""A power cut, tried: what a process does to its files is recorded, and each disk that a cut may leave is rebuilt."""
