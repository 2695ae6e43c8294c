"""`python -m trainlet.cli`: the command line where no script is installed, as in the images."""

from __future__ import annotations

from trainlet.cli import main

if __name__ == "__main__":
    main()
