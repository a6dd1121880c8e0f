"""A run of the coding machine in a process of its own: `python tests/coding_beside.py RUNS WORKSPACE MODEL` prints how it has ended, as JSON."""

import asyncio
import json
import sys

from coders import config_of

from dsa.runs.runs import open_runs
from machines.coding.coding_resources import settings_of
from machines.coding.work_session import Agent, WorkStart

if __name__ == "__main__":
    runs, workspace, model = sys.argv[1:]
    with (
        open_runs(runs) as opened,
        Agent.begin(WorkStart("Do it", settings_of(config_of(model, workspace))), opened) as agent,
    ):
        asyncio.run(agent.go_on())
        print(json.dumps({"state": agent.state, "files": agent.work.files_written}))
