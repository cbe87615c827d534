"""Run as `python -m ingestor`."""

from ingestor.cli import main

if __name__ == "__main__":
    main()
