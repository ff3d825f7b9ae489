#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs `run --trace` and the verb trace: lines of OTLP, collectors, files for viewers.

Usage: cli_trace_test.py RUNNER [unittest options]
"""

import base64
import http.server
import json
import re
import subprocess
import threading
import unittest
import urllib.request

from runner import Cli, QUESTION, RUNNER

try:
    from google.protobuf import json_format
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
    from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status
except ImportError:
    ExportTraceServiceRequest = None

NO_PROTO = "the package opentelemetry-proto is not installed (pip install opentelemetry-proto)"


class Collector:
    """Takes what is posted to it; answers with the statuses that it is given, then with 200."""

    def __init__(self, test, *statuses):
        self.asked, left = [], list(statuses)
        collector = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                collector.asked.append((self.path, dict(self.headers), body))
                self.send_response(left.pop(0) if left else 200)
                self.send_header("Content-Length", "2")
                self.end_headers()
                self.wfile.write(b"{}")

            def log_message(self, *_):
                pass

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{server.server_port}"
        threading.Thread(target=server.serve_forever, daemon=True).start()
        test.addCleanup(server.server_close)
        test.addCleanup(server.shutdown)


def plain(value):
    """An AnyValue as Python has it."""
    (kind, held), = value.items()
    return {"intValue": int, "arrayValue": lambda a: [plain(v) for v in a["values"]]}.get(kind, lambda v: v)(held)


class Traces(Cli):
    def environment(self, **changes):
        return {name: value for name, value in super().environment(**changes).items() if not name.startswith("OTEL_") or name in changes}

    def traced(self, *more, to="trace.json", code=0, **changes):
        return self.baton("run", self.team, "--input", QUESTION, "-q", "--trace", to, *more, code=code, **changes)

    def need_sender(self):
        if "cannot send anything" in self.traced(to="http://127.0.0.1:9", OTEL_EXPORTER_OTLP_TIMEOUT="1").stderr:
            self.skipTest("this build cannot send traces")

    def spans(self, line):
        resource, = json.loads(line)["resourceSpans"]
        scope, = resource["scopeSpans"]
        for span in scope["spans"]:
            span["attributes"] = {one["key"]: plain(one["value"]) for one in span["attributes"]}
        return scope["spans"]

    def test_of_a_run(self):
        self.traced("--record", "run")
        line, = (self.folder / "trace.json").read_text().splitlines()
        record = json.loads((self.folder / "run/run.json").read_text())
        spans = self.spans(line)
        self.assertEqual([span["name"] for span in spans],
                         ["invoke_workflow pair", "invoke_agent solver", "chat nano", "invoke_agent checker", "chat nano"])
        for turn, agent in zip((spans[1], spans[3]), record["agents"]):
            attributes = turn["attributes"]
            self.assertEqual(attributes["gen_ai.usage.input_tokens"], agent["prompt_tokens"])
            self.assertEqual(attributes["gen_ai.usage.output_tokens"], agent["output_tokens"])
            self.assertEqual(attributes["baton.kv.computed"], agent["kv"]["computed"])
            self.assertEqual([dict((a["key"], plain(a["value"])) for a in event["attributes"])["baton.placeholder.name"] for event in turn["events"]],
                             [slot["name"] for slot in agent["slots"]])
            lasted = (int(turn["endTimeUnixNano"]) - int(turn["startTimeUnixNano"])) / 1e6
            self.assertGreater(lasted, agent["decode_ms"] - 1)
            self.assertLess(lasted, record["wall_ms"] + 1)
        self.assertEqual(spans[3]["links"], [{"traceId": spans[0]["traceId"], "spanId": spans[1]["spanId"]}])
        self.assertRegex(record["date"], r"\.\d{3}Z$")
        for text in (record["agents"][0]["output"].strip(), "Mia has 12 apples", "math expert"):
            self.assertNotIn(json.dumps(text)[1:-1], line)

        # The stored record gives the same trace, but for the moments at which this process saw the events.
        self.assertEqual(self.baton("report", "run", "--trace", "stored.json").stdout, "stored.json\n")
        stored = self.spans((self.folder / "stored.json").read_text())
        self.assertEqual(len(stored), len(spans))
        for a, b in zip(spans, stored):
            for key in ("traceId", "spanId", "name", "kind", "attributes", "status"):
                if key == "attributes":
                    a[key], b[key] = ({k: v for k, v in one[key].items() if not isinstance(v, float)} for one in (a, b))
                self.assertEqual(a[key], b[key])
            for key in ("startTimeUnixNano", "endTimeUnixNano"):
                self.assertAlmostEqual(int(a[key]) / 1e6, int(b[key]) / 1e6, delta=50)

        self.traced()
        self.assertEqual(len((self.folder / "trace.json").read_text().splitlines()), 2)

    @unittest.skipUnless(ExportTraceServiceRequest, NO_PROTO)
    def test_the_protocols_own_reader_reads_it(self):
        self.traced()
        self.baton("run", self.write("loud.yaml", (self.folder / self.team).read_text().replace("role: Solver", 'role: "a\\"b\\u0001\\\\\\u2028ü"')),
                   "--input", QUESTION, "-q", "--trace", "trace.json", "--timeout", "1ms", code=5)
        for line in (self.folder / "trace.json").read_text().splitlines():
            request = json.loads(line)

            def encode(node):  # OTLP has ids in hexadecimal digits where the JSON of protocol buffers has base64
                for key, value in node.items() if isinstance(node, dict) else enumerate(node):
                    if key in ("traceId", "spanId", "parentSpanId"):
                        self.assertRegex(value, r"^[0-9a-f]+$")
                        node[key] = base64.b64encode(bytes.fromhex(value)).decode()
                    elif isinstance(value, (dict, list)):
                        encode(value)

            encode(request)
            parsed = json_format.Parse(json.dumps(request), ExportTraceServiceRequest())  # refuses unknown fields
            spans = parsed.resource_spans[0].scope_spans[0].spans
            self.assertEqual(parsed.resource_spans[0].resource.attributes[0].key, "service.name")
            known = set()
            for span in spans:
                self.assertEqual((len(span.trace_id), len(span.span_id)), (16, 8))
                self.assertTrue(span.parent_span_id in known if known else span.parent_span_id == b"")
                known.add(span.span_id)
                self.assertLessEqual(span.start_time_unix_nano, span.end_time_unix_nano)
                self.assertIn(span.kind, (Span.SPAN_KIND_INTERNAL, Span.SPAN_KIND_CLIENT))
                self.assertIn(span.status.code, (Status.STATUS_CODE_UNSET, Status.STATUS_CODE_ERROR))
                self.assertTrue(any(a.key == "gen_ai.operation.name" for a in span.attributes))
            self.assertTrue(spans)

    def test_a_collector(self):
        self.need_sender()
        collector = Collector(self, 503)
        done = self.traced(to=collector.address, OTEL_EXPORTER_OTLP_HEADERS="x-key=secret", OTEL_SERVICE_NAME="sums")
        self.assertEqual(done.stderr, "")
        self.assertEqual([path for path, _, _ in collector.asked], ["/v1/traces"] * 2)
        _, headers, body = collector.asked[-1]
        self.assertEqual((headers["Content-Type"], headers["x-key"]), ("application/json", "secret"))
        resource = json.loads(body)["resourceSpans"][0]["resource"]["attributes"]
        self.assertEqual(resource, [{"key": "service.name", "value": {"stringValue": "sums"}}])
        self.assertEqual(len(self.spans(body)), 5)

        self.traced(to="otlp", OTEL_EXPORTER_OTLP_ENDPOINT=collector.address)
        self.assertEqual(len(collector.asked), 3)
        self.baton("run", self.team, "--input", QUESTION, "-q", "--record", "run", OTEL_EXPORTER_OTLP_ENDPOINT=collector.address)
        self.assertEqual(len(collector.asked), 3)  # nobody asked for a trace
        done = self.baton("report", "run", "--trace", collector.address)
        self.assertEqual((done.stdout, len(collector.asked)), ("", 4))

    def test_a_collector_that_is_not_there(self):
        self.need_sender()
        done = self.traced(to="http://127.0.0.1:9", OTEL_EXPORTER_OTLP_TIMEOUT="700")
        self.assertTrue(done.stdout)
        self.assertRegex(done.stderr, r"^warning: the trace is lost: http://127.0.0.1:9/v1/traces: [^\n]+\n$")
        self.baton("run", self.team, "--input", QUESTION, "-q", "--record", "run")
        done = self.baton("report", "run", "--trace", "http://127.0.0.1:9", code=1, OTEL_EXPORTER_OTLP_TIMEOUT="700")
        self.assertIn("the trace could not be written", done.stderr)

    def test_usage(self):
        for to, words in (("none/trace.json", "is in no folder"), ("ftp://host", "begins with http:// or https://")):
            done = self.traced(to=to, code=2)
            self.assertIn(words, done.stderr)
            self.assertEqual(done.stdout, "")
        self.assertIn("OTEL_EXPORTER_OTLP_HEADERS", self.traced(to="otlp", code=2, OTEL_EXPORTER_OTLP_HEADERS="x").stderr)
        done = self.traced(to="/dev/full", code=1)
        self.assertTrue(done.stdout)  # the result is not lost with the file
        self.assertIn("/dev/full", done.stderr)
        self.baton("report", "nowhere", "--trace", code=2)
        self.baton("run", self.team, "--input", QUESTION, "-q", "--record", "run")
        (self.folder / "run/events.ndjson").unlink()
        self.assertIn("events.ndjson is missing", self.baton("report", "run", "--trace", code=3).stderr)

    def test_a_file_for_a_viewer(self):
        self.traced("--record", "run", to="live.perfetto.json")
        self.assertEqual(self.baton("report", "run", "--trace").stdout, "run/trace.perfetto.json\n")
        for file in ("live.perfetto.json", "run/trace.perfetto.json"):
            events = json.loads((self.folder / file).read_text())["traceEvents"]
            rows = {event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"}
            self.assertEqual(sorted(rows.values()), ["checker", "run", "solver"])
            slices = [(rows[event["tid"]], event["name"]) for event in events if event["ph"] == "X"]
            self.assertEqual(slices[:5], [("run", "invoke_workflow pair"), ("solver", "invoke_agent solver"), ("solver", "chat nano"),
                                          ("solver", "prefill"), ("solver", "decode")])
            self.assertEqual(sorted(event["ph"] for event in events if event["ph"] in "sf"), ["f", "s"])  # an arrow

    def test_a_server_traces_each_run(self):
        if "has no server" in subprocess.run([RUNNER, "serve", self.team, "--port", "0", "--trace", "none/x.json"], cwd=self.folder,
                                             env=self.environment(), capture_output=True, text=True, timeout=60).stderr:
            self.skipTest("this build has no server")
        server = subprocess.Popen([RUNNER, "serve", self.team, "--port", "0", "--trace", "served.json"], cwd=self.folder, env=self.environment(),
                                  stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        self.addCleanup(server.stderr.close)
        self.addCleanup(server.wait)
        self.addCleanup(server.kill)
        url = re.search(r"http://\S+", server.stderr.readline())[0]
        for number in range(3):
            body = {"model": "team", "messages": [{"role": "user", "content": "SECRET"}], "max_tokens": 1, "stream": number == 1}
            request = urllib.request.Request(url + "/v1/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"})
            with urllib.request.urlopen(request, timeout=60) as reply:
                reply.read()
        server.terminate()
        self.assertEqual(server.wait(60), 0)
        lines = (self.folder / "served.json").read_text().splitlines()
        self.assertEqual([len(self.spans(line)) for line in lines], [5] * 3)
        self.assertEqual(len({self.spans(line)[0]["traceId"] for line in lines}), 3)
        self.assertNotIn("SECRET", "".join(lines))

    def test_a_resumed_run(self):
        self.baton("run", self.team, "--input", QUESTION, "-q", "--record", "run", "--timeout", "1ms", code=5)
        (self.folder / "elsewhere").mkdir()
        subprocess.run([RUNNER, "resume", "../run", "-q", "--trace", "../rest.json"], cwd=self.folder / "elsewhere", env=self.environment(),
                       stdin=subprocess.DEVNULL, capture_output=True, check=True, timeout=60)
        names = [span["name"] for span in self.spans((self.folder / "rest.json").read_text())]
        self.assertIn("invoke_agent checker", names)


if __name__ == "__main__":
    unittest.main()
