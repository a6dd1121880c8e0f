"""`python tests/benchmarks/tasks`: measure how often tasks are solved, by one attempt, by several, and by several with feedback."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.tasks.command import main

if __name__ == "__main__":
    main()
