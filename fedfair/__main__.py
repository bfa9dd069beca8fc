"""`python -m fedfair`: the same commands as `fedfair`."""

from __future__ import annotations

from fedfair.cli.__main__ import main

if __name__ == "__main__":
    main()
