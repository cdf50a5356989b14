"""`python -m tandem.cache list|verify|clear|explain A B|export FILE|import FILE`: the folder of
compiled programs that TANDEM_CACHE_DIR names, as the command `tandem cache` has it."""

import sys

from tandem._tandem import UserError, cache_command


def main(words):
    """Prints; gives the status of the process."""
    try:
        sys.stdout.write(cache_command(words))
    except UserError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
