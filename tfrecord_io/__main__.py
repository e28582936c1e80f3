"""The command line as ``python -m tfrecord_io``."""

from tfrecord_io.cli import main

if __name__ == "__main__":
    main()
