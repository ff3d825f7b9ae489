# SPDX-License-Identifier: Apache-2.0
"""Records of runs for tests of what reads them: real ones, and those that no run wrote."""

import json

from runner import Cli, QUESTION


class Records(Cli):
    def record(self, *more, team=None, code=0, name="run"):
        self.baton("run", team or self.team, "--input", QUESTION, "--record", name, "-q", *more, code=code)
        return self.folder / name

    def change(self, folder, change):
        path = folder / "run.json"
        record = json.loads(path.read_text())
        change(record)
        path.write_text(json.dumps(record))

    def made(self, agents=None, events=None, **changes):
        """A record that no run wrote."""
        folder = self.folder / "made"
        (folder / "prompts").mkdir(parents=True, exist_ok=True)
        agents = [self.turn("solver")] if agents is None else agents
        record = {"schema": 1, "workflow": "made", "state": "ok", "error": "", "error_kind": "", "model": {"path": "/m", "fingerprint": "f"},
                  "device": "cpu", "relay": "auto", "seed": 0, "outputs": {}, "wall_ms": 100.0, "agents": agents,
                  "memory": {"weights_bytes": 1, "kv_peak_bytes": 2, "segments_peak_bytes": 3}, **changes}
        (folder / "run.json").write_text(json.dumps(record))
        if events is not None:
            (folder / "events.ndjson").write_text("".join(json.dumps(event) + "\n" for event in events))
        return folder

    @staticmethod
    def turn(agent, **changes):
        return {"agent": agent, "role": "Role", "round": 1, "state": "ok", "error": "", "attempts": 1, "prompt_tokens": 10, "output_tokens": 5,
                "output": "said", "answer": "", "finish_reason": "eos",
                "kv": {"entries": 100, "reused": 0, "computed": 100, "ahead": 0, "reuse_rate": 0.0},
                "ttft_ms": 20.0, "prefill_ms": 10.0, "decode_ms": 30.0, "tokens_per_s": 100.0, "slots": [], **changes}

    @staticmethod
    def slot(name="question", **changes):
        return {"name": name, "tokens": 4, "method": "full", "reused_tokens": 0, "recomputed_tokens": 4, "ahead_tokens": 0, "kv_reuse_rate": 0.0,
                "kv_reuse_bound": 0.0, "hops": 0, "corrected": False, "reason": "computed here first", "anchors": None, **changes}
