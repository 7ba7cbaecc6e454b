"""`python -m db.ingest`."""

import sys

from db.ingest.update import main

sys.exit(main())
