#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A team in this process, from Python: its agents' text as they write it, then the answer. Ctrl-C ends the run.

    hello_team.py [MODEL]        a folder, a .gguf file, a name or hf:ORG/NAME
"""

import sys

import baton

QUESTION = "Noah pays for 2 books at 7 coins each with 75 coins. How many coins does he get back from the shop?"


def main():
    engine = baton.Engine(model=sys.argv[1] if len(sys.argv) > 1 else None)
    team = baton.Workflow.load("math_team")  # ships with Baton; a path names your own
    run = engine.start(team, {"user_question": QUESTION})
    try:
        for event in run:
            if isinstance(event, baton.AgentStarted):
                print(f"\n\n[{event.role}]")
            if isinstance(event, baton.Token):
                print(event.text, end="", flush=True)
    except KeyboardInterrupt:
        run.stop()
        return 130
    print(f"\n\n[answer]\n{run.outputs()['answer']}")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except baton.Error as error:
        sys.exit(str(error))
