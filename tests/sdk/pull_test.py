#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs `baton pull` against a hub on this machine, and runs what was pulled.

Usage: pull_test.py RUNNER [unittest options]
"""

import gzip
import hashlib
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import time
import unittest

from hub_server import COMMIT, Repository, Server, git_sha1
from runner import Cli, QUESTION, ROOT, RUNNER, TEAM

NANO = ROOT / "samples/models/nano"
NANO_FILES = ["config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors", "README.md"]
MIB = 1 << 20


def noise(size, seed=1):
    return random.Random(seed).randbytes(size)


def gguf(size, seed=1):
    return b"GGUF" + noise(size - 4, seed)


class Pull(Cli):
    def setUp(self):
        super().setUp()
        self.cdn = self.server()
        self.hub = self.server(self.cdn)
        self.cache = self.folder / "hf/hub"

    def server(self, *arguments):
        server = Server(*arguments)
        self.addCleanup(server.close)
        return server

    def environment(self, **changes):
        kept = {name: value for name, value in super().environment().items()
                if not name.startswith(("HF_", "HUGGING", "TRANSFORMERS_", "CURL_", "SSL_")) and not name.lower().endswith("_proxy")}
        return {**kept, "HOME": str(self.folder), "XDG_CACHE_HOME": str(self.folder / "cache"), "HF_HOME": str(self.folder / "hf"),
                "HF_ENDPOINT": self.hub.url, **changes}

    def one(self, size=300_000, **options):
        """A repository of one GGUF file; its contents."""
        data = gguf(size)
        self.hub.add("org/one", Repository({"one-Q8_0.gguf": data}, **options))
        return data

    def pulled(self, *arguments, **changes):
        """Pulls; returns the model's path."""
        return pathlib.Path(self.baton("pull", *arguments, **changes).stdout.strip())

    def leftovers(self):
        return [str(path) for path in self.folder.rglob("*") if ".incomplete" in path.name or path.name.startswith(".one")]

    def blobs(self, name="one"):
        return sorted(path.name for path in (self.cache / f"models--org--{name}/blobs").iterdir())


class Folders(Pull):
    def setUp(self):
        super().setUp()
        files = {name: (NANO / name).read_bytes() for name in NANO_FILES}
        self.nano = self.hub.add("org/nano", Repository({**files, "original/weights.safetensors": b"x" * 100, "onnx/model.onnx": b"y"}))

    def test_pull_and_run(self):
        done = self.baton("pull", "org/nano")
        path = pathlib.Path(done.stdout.strip())
        self.assertEqual(path, self.cache / "models--org--nano/snapshots" / COMMIT)
        self.assertIn("licence: apache-2.0", done.stderr.splitlines()[0])
        self.assertIn("8.0 MiB", done.stderr)
        self.assertNotIn("\r", done.stderr)
        self.assertEqual(sorted(os.listdir(path)), sorted(set(NANO_FILES) - {"README.md"}))
        for name in os.listdir(path):  # the layout of the cache that other tools share
            self.assertEqual(os.readlink(path / name), "../../blobs/" + self.nano.checksum(name))
            self.assertEqual((path / name).read_bytes(), self.nano.files[name])
        self.assertEqual((self.cache / "models--org--nano/refs/main").read_text(), COMMIT)
        self.assertEqual(self.leftovers(), [])

        self.write("pulled.yaml", TEAM.replace(str(NANO), "hf:org/nano"))
        before = len(self.hub.requests)
        record = json.loads(self.baton("run", "pulled.yaml", "-i", QUESTION, "--json", "-q").stdout)
        here = json.loads(self.baton("run", self.team, "-i", QUESTION, "--json", "-q").stdout)
        self.assertEqual(record["outputs"], here["outputs"])
        self.assertEqual(record["model"]["fingerprint"], here["model"]["fingerprint"])
        self.assertEqual(record["model"]["path"], str(path))
        for option in ("hf:org/nano", "main=hf:org/nano@main", f"main=hf:org/nano@{COMMIT}"):
            self.baton("check", "--plan", self.team, "--model", option)
        self.assertIn("hf:org/nano", self.baton("models").stdout)
        self.assertEqual(len(self.hub.requests), before, "running opened a connection")

    def test_a_second_pull_downloads_nothing(self):
        self.baton("pull", "org/nano")
        files = len(self.hub.gets("resolve") + self.cdn.gets())
        self.assertEqual(files, len(NANO_FILES) - 1 + 1)  # the weights are redirected
        done = self.baton("pull", "org/nano")
        self.assertIn("model.safetensors  8.0 MiB, is there", done.stderr)
        self.assertEqual(len(self.hub.gets("resolve") + self.cdn.gets()), files)
        self.hub.close()
        self.assertEqual(self.baton("pull", "org/nano", "--offline").stdout, done.stdout)
        self.assertEqual(self.baton("pull", "hf:org/nano", HF_HUB_OFFLINE="1").stdout, done.stdout)

    def test_what_other_tools_pulled_is_found(self):
        folder = self.cache / "models--org--nano"
        for name in NANO_FILES:
            blob, link = folder / "blobs" / self.nano.checksum(name), folder / "snapshots" / COMMIT / name
            for path in (blob, link):
                path.parent.mkdir(parents=True, exist_ok=True)
            blob.write_bytes(self.nano.files[name])
            link.symlink_to(os.path.relpath(blob, link.parent))
        (folder / "refs").mkdir()
        (folder / "refs/main").write_text(COMMIT)
        self.baton("check", "--plan", self.team, "--model", "hf:org/nano")
        self.baton("pull", "org/nano")
        self.assertEqual(self.hub.gets("resolve") + self.cdn.gets(), [])

    def test_shards(self):
        names = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
        files = {name: noise(1000, seed) for seed, name in enumerate(names)}
        files.update({"config.json": b"{}", "model.safetensors.index.json": b"{}", "consolidated.safetensors": noise(5000)})
        repository = self.hub.add("org/shards", Repository(files))
        path = self.pulled("org/shards")
        self.assertEqual(sorted(os.listdir(path)), sorted(["config.json", "model.safetensors.index.json", *names]))
        del repository.files[names[1]]
        self.assertIn(names[1] + " is not there", self.baton("pull", "org/shards", code=2).stderr)

    def test_not_pulled(self):
        for arguments in (["--model", "hf:org/nano"], ["--model", "main=hf:org/nano@main"]):
            done = self.baton("run", self.team, "-i", QUESTION, *arguments, code=4)
            self.assertIn("run: baton pull org/nano\n", done.stderr)
        self.assertIn("baton pull org/nano@v2:Q4_K_M", self.baton("run", self.team, "-i", QUESTION, "--model", "hf:org/nano@v2:Q4_K_M", code=4).stderr)
        self.write("wrong.yaml", TEAM.replace(str(NANO), "hf:nano"))
        self.assertIn("expected hf:ORG/NAME", self.baton("run", "wrong.yaml", "-i", QUESTION, code=4).stderr)
        self.assertIn("offline", self.baton("pull", "org/nano", "--offline", code=1).stderr)
        self.assertEqual(self.hub.requests, [])
        # What another tool pulled of it is not the whole model.
        self.baton("pull", "org/nano")
        (self.cache / "models--org--nano/blobs" / self.nano.checksum("model.safetensors")).unlink()
        self.assertIn("run: baton pull org/nano\n", self.baton("run", self.team, "-i", QUESTION, "--model", "hf:org/nano", code=4).stderr)

    def test_a_pointer_of_git_lfs_is_no_model(self):
        shutil.copytree(NANO, self.folder / "clone", ignore=shutil.ignore_patterns("recipe", "*.safetensors"))
        pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:%s\nsize 8373784\n" % ("0" * 64)
        self.write("clone/model.safetensors", pointer)
        self.write("small.gguf", pointer)
        for model in ("./clone", "./small.gguf"):
            self.assertIn("pointer of Git LFS", self.baton("run", self.team, "-i", QUESTION, "--model", model, code=4).stderr)


class Choice(Pull):
    def setUp(self):
        super().setUp()
        self.files = {"README.md": b"readme", "config.json": b"{}", "mmproj-F16.gguf": gguf(100)}
        for name in ("small-Q4_K_M", "small-Q4_K_S", "small-F16", "BF16/small-BF16-00001-of-00002", "BF16/small-BF16-00002-of-00002"):
            self.files[name + ".gguf"] = gguf(3000, seed=name)
        self.hub.add("org/small-GGUF", Repository(self.files))

    def test_by_quantisation_and_by_name(self):
        for choice in ("Q4_K_M", "q4_k_m", "small-Q4_K_M", "small-Q4_K_M.gguf"):
            self.assertEqual(self.pulled("org/small-GGUF:" + choice).name, "small-Q4_K_M.gguf")
        page = f"{self.hub.url}/org/small-GGUF/blob/main/small-Q4_K_M.gguf"
        self.assertEqual(self.pulled(page).name, "small-Q4_K_M.gguf")
        self.assertEqual(len(self.cdn.gets()), 1)
        self.assertEqual(self.pulled("org/small-GGUF:F16").name, "small-F16.gguf")
        self.assertEqual(self.pulled("org/small-GGUF:mmproj-F16.gguf").name, "mmproj-F16.gguf")

    def test_split_files(self):
        path = self.pulled("hf:org/small-GGUF:bf16")
        self.assertEqual(path.relative_to(path.parent.parent).as_posix(), "BF16/small-BF16-00001-of-00002.gguf")
        for name in (path.name, path.name.replace("00001-of", "00002-of")):
            self.assertEqual((path.parent / name).read_bytes(), self.files["BF16/" + name])
        error = self.baton("run", self.team, "-i", QUESTION, "--model", "hf:org/small-GGUF:BF16", code=4).stderr
        self.assertIn(str(path), error)  # found; its contents are noise
        (path.parent / path.name.replace("00001-of", "00002-of")).unlink()
        error = self.baton("run", self.team, "-i", QUESTION, "--model", "hf:org/small-GGUF:BF16", code=4).stderr
        self.assertIn("00002-of-00002.gguf is not there", error)
        self.assertIn("run: baton pull org/small-GGUF:BF16", error)

    def test_what_there_is(self):
        several = self.baton("pull", "org/small-GGUF", code=2).stderr
        self.assertRegex(several, r"small-Q4_K_M\.gguf  2\.9 KiB\n")
        self.assertRegex(several, r"00001-of-00002\.gguf  5\.9 KiB in 2 parts")
        self.assertIn("has 4 models", several)
        self.assertNotIn("mmproj", several)
        self.assertIn("small-Q4_K_S.gguf", self.baton("pull", "org/small-GGUF:Q5_K_M", code=2).stderr)
        self.baton("pull", "org/small-GGUF:Q4_K", code=2)  # no word of any name
        self.hub.add("org/bert", Repository({"model.onnx": b"x", "config.json": b"{}"}))
        self.assertIn("no model that Baton reads", self.baton("pull", "org/bert", code=2).stderr)
        self.assertEqual(self.cdn.requests, [])

    def test_wrong_names(self):
        for name in ("small", "org/", "/etc/passwd", "org/na me", "org/name/more", "../x", "org/..", "org/a--b", "org/name:", "org/name@",
                     "org/name@../../x", "org/name:../x", "org/name:a//b", "https://host/page.html", "file:relative.gguf", "http:x.gguf"):
            self.assertTrue(self.baton("pull", name, code=2).stderr, name)
        self.baton("pull", "org/small-GGUF", "--revision", "../x", code=2)
        self.baton("pull", code=2)
        self.assertEqual(self.hub.requests, [])

    def test_dry_run_and_json(self):
        plan = json.loads(self.baton("pull", "org/small-GGUF:Q4_K_M", "--dry-run", "--json").stdout)
        self.assertFalse((self.folder / "hf").exists())
        data = self.files["small-Q4_K_M.gguf"]
        self.assertEqual(plan["files"], [{"name": "small-Q4_K_M.gguf", "bytes": 3000, "checksum": "sha256:" + hashlib.sha256(data).hexdigest(),
                                          "present_bytes": 0, "cached": False}])
        self.assertEqual((plan["source"], plan["commit"], plan["licence"]), ("hf:org/small-GGUF:Q4_K_M", COMMIT, "apache-2.0"))
        self.assertEqual(self.baton("pull", "org/small-GGUF:Q4_K_M", "--dry-run").stdout, "")
        done = self.baton("pull", "org/small-GGUF:Q4_K_M", "--json", "-q")
        self.assertEqual(json.loads(done.stdout)["path"], plan["path"])
        self.assertEqual(done.stderr, "")

    def test_revisions(self):
        old = "2e" * 20
        self.hub.repositories["org/small-GGUF"].commit = old
        self.baton("pull", "org/small-GGUF:F16", "--revision", old)
        self.assertFalse((self.cache / "models--org--small-GGUF/refs").exists())
        self.baton("check", "--plan", self.team, "--model", f"hf:org/small-GGUF@{old}:F16")
        self.assertIn("revision, 'v9'", self.baton("pull", "org/small-GGUF@v9:F16", code=1, HF_TOKEN="t").stderr)


class Transfer(Pull):
    def test_a_cut_connection_is_resumed(self):
        data = self.one()
        self.cdn.cut_after = [100_000, 150_000]
        done = self.baton("pull", "org/one")
        self.assertEqual(self.cdn.headers("blob", "Range"), [None, "bytes=100000-", "bytes=250000-"])
        self.assertEqual(pathlib.Path(done.stdout.strip()).read_bytes(), data)
        self.assertIn("again in 0.5 s (1 of 5)", done.stderr)

    def test_a_server_without_ranges_begins_again(self):
        data = self.one()
        self.cdn.cut_after, self.cdn.ignores_range = [100_000], True
        done = self.baton("pull", "org/one")
        self.assertEqual(pathlib.Path(done.stdout.strip()).read_bytes(), data)
        self.assertIn("from its beginning", done.stderr)

    def test_interrupted_and_resumed(self):
        data = self.one(2 * MIB)
        self.cdn.bytes_per_second = MIB
        with subprocess.Popen([RUNNER, "pull", "org/one"], cwd=self.folder, env=self.environment(), stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True) as process:
            part = self.cache / "models--org--one/blobs" / (hashlib.sha256(data).hexdigest() + ".incomplete")
            for _ in range(200):
                if part.exists() and part.stat().st_size > 100_000:
                    break
                time.sleep(0.02)
            process.send_signal(signal.SIGINT)
            _, stderr = process.communicate(timeout=20)
        self.assertEqual(process.returncode, 130, stderr)
        self.assertIn("goes on where it stopped", stderr)
        had = part.stat().st_size
        self.assertEqual(part.read_bytes(), data[:had])
        self.assertIn("baton pull org/one", self.baton("run", self.team, "-i", QUESTION, "--model", "hf:org/one", code=4).stderr)
        self.cdn.bytes_per_second = 0
        done = self.baton("pull", "org/one")
        self.assertIn("are there", done.stderr)
        self.assertEqual(self.cdn.headers("blob", "Range"), [None, f"bytes={had}-"])
        self.assertEqual(pathlib.Path(done.stdout.strip()).read_bytes(), data)
        self.assertEqual(self.leftovers(), [])

    def test_a_damaged_part_begins_again(self):
        data = self.one()
        part = self.cache / "models--org--one/blobs" / (hashlib.sha256(data).hexdigest() + ".incomplete")
        part.parent.mkdir(parents=True)
        for content in (b"\0" * 1000, data[:1000] + b"\0" * 1000, data + b"more"):
            part.write_bytes(content)
            path = self.pulled("org/one")
            self.assertEqual(path.read_bytes(), data)
            path.resolve().unlink()
        part.write_bytes(data)  # complete: only its checksum is missing
        requests = len(self.cdn.requests)
        self.assertEqual(self.pulled("org/one").read_bytes(), data)
        self.assertEqual(len(self.cdn.requests), requests)

    def test_a_wrong_checksum(self):
        data = self.one()
        self.cdn.blobs = {path: b"GGUF" + noise(len(data) - 4, 7) for path in self.cdn.blobs}
        done = self.baton("pull", "org/one", code=6)
        self.assertIn(hashlib.sha256(data).hexdigest(), done.stderr)
        self.assertEqual(self.blobs(), [])
        self.hub.add("org/git", Repository({"git.gguf": gguf(1000)}, large=()))
        self.hub.override["/org/git/resolve/%s/git.gguf" % COMMIT] = (200, {}, gguf(1000, 2))
        self.assertIn("git-sha1:" + git_sha1(gguf(1000)), self.baton("pull", "org/git", code=6).stderr)

    def test_busy_servers(self):
        data = self.one()
        self.cdn.answers = [(429, {"Retry-After": "1"}), (503, {})]
        begin = time.monotonic()
        done = self.baton("pull", "org/one")
        self.assertGreater(time.monotonic() - begin, 1 + 1)
        self.assertEqual(pathlib.Path(done.stdout.strip()).read_bytes(), data)
        self.cdn.answers = [(503, {})] * 5
        pathlib.Path(done.stdout.strip()).resolve().unlink()
        self.assertIn("status 503", self.baton("pull", "org/one", "--retries", "1", code=1).stderr)
        self.assertEqual(len(self.cdn.answers), 3)
        self.cdn.answers = [(429, {"Retry-After": "100000"})]
        self.assertIn("asks to wait 100000 s", self.baton("pull", "org/one", code=1).stderr)

    def test_a_server_that_stops_sending(self):
        data = self.one()
        self.hub.override["/api/models/org/one/revision/main"] = lambda handler: time.sleep(5)
        begin = time.monotonic()
        self.assertIn("less than 1 KiB/s for 1 s", self.baton("pull", "org/one", "--retries", "0", code=1, HF_HUB_DOWNLOAD_TIMEOUT="1").stderr)
        self.assertLess(time.monotonic() - begin, 4)

    def test_a_server_that_sends_slowly(self):
        self.one()

        def pull():
            return self.baton("pull", "org/one", "--retries", "0", code=1, HF_HUB_DOWNLOAD_TIMEOUT="1").stderr

        def slowly(begin, piece):
            def answer(handler):
                handler.close_connection = True
                try:
                    handler.wfile.write(begin)
                    while True:
                        handler.wfile.write(piece)
                        time.sleep(0.1)
                except OSError:
                    pass
            self.hub.override["/api/models/org/one/revision/main"] = answer
        self.cdn.bytes_per_second = 200
        self.assertIn("less than 1 KiB/s for 1 s", pull())
        for begin in (b"HTTP/1.1 200 OK\r\n\r\n", b"HTTP/1.1 200 OK\r\nX-Long: "):
            slowly(begin, b" ")
            self.assertIn("less than 1 KiB/s for 1 s", pull())
        slowly(b"HTTP/1.1 200 OK\r\n\r\n", b" " * 2000)
        self.assertIn("no complete answer within 10 s", pull())

    def test_two_pulls_at_once_download_once(self):
        data = self.one(MIB)
        self.cdn.bytes_per_second = 2 * MIB
        pulls = [subprocess.Popen([RUNNER, "pull", "org/one"], cwd=self.folder, env=self.environment(), stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, text=True) for _ in range(3)]
        outputs = [process.communicate(timeout=30) for process in pulls]
        self.assertEqual([process.returncode for process in pulls], [0, 0, 0], outputs)
        self.assertEqual(len({stdout for stdout, _ in outputs}), 1)
        self.assertIn("waiting", "".join(stderr for _, stderr in outputs))
        self.assertEqual(len(self.cdn.gets("blob")), 1)
        self.assertEqual(pathlib.Path(outputs[0][0].strip()).read_bytes(), data)

    def test_progress(self):
        self.one(MIB)
        self.cdn.bytes_per_second = 2 * MIB
        code, seen = self.in_terminal("pull", "org/one")
        self.assertEqual(code, 0, seen)
        self.assertRegex(seen, r"\r\x1b\[K *\d+ %  [0-9.]+ [KM]iB of 1\.0 MiB  [0-9.]+ MiB/s  [^\r]* left  one-Q8_0\.gguf")

    def test_mirrors_that_know_less(self):
        data = self.one()
        self.hub.add("org/nano", Repository({f"f{i}.bin": b"x" for i in range(20)} | {"config.json": b"{}", "model.safetensors": noise(500)}))
        self.hub.knows_blobs, self.hub.page = False, 4
        self.pulled("org/nano")
        self.assertEqual(len(self.hub.gets("/tree/")), 6)
        self.hub.knows_tree = False
        self.assertEqual(self.pulled("org/one").read_bytes(), data)
        self.assertEqual(self.blobs(), [hashlib.sha256(data).hexdigest()])


class Access(Pull):
    def test_who_may_not(self):
        self.assertIn("HF_TOKEN", self.baton("pull", "org/none", code=1).stderr)
        self.assertIn("no such repository", self.baton("pull", "org/none", code=1, HF_TOKEN="hf_x").stderr)
        self.one(gated="manual")
        self.cdn.answers = []
        self.hub.override["/org/one/resolve/%s/one-Q8_0.gguf" % COMMIT] = (403, {"X-Error-Code": "GatedRepo", "X-Error-Message": "Access is restricted"}, b"")
        done = self.baton("pull", "org/one", code=1)
        self.assertIn("accept its conditions at %s/org/one" % self.hub.url, done.stderr)
        self.assertIn("gated", done.stderr.splitlines()[0])
        self.assertEqual(self.leftovers(), [])

    def test_the_token_goes_to_the_hub_only(self):
        self.one()
        secret = "Bearer hf_secret"
        self.baton("pull", "org/one", HF_TOKEN="hf_secret")
        self.assertEqual(set(self.hub.headers("", "Authorization")), {secret})
        self.assertEqual(set(self.cdn.headers("", "Authorization")), {None})
        # From files, and through a redirect within the hub.
        self.hub.requests.clear()
        self.hub.override["/api/models/org/renamed/revision/main"] = (307, {"Location": "/api/models/org/one/revision/main?blobs=true"}, b"")
        self.write("token", " hf_secret\n")
        self.baton("pull", "org/renamed", "--dry-run", HF_TOKEN_PATH=str(self.folder / "token"))
        (self.folder / "hf/token").write_text("hf_secret")
        self.baton("pull", "org/one", "--dry-run")
        self.assertEqual(self.hub.headers("", "Authorization"), [secret] * 3)
        self.baton("pull", "org/one", "--dry-run", HF_HUB_DISABLE_IMPLICIT_TOKEN="1")
        self.assertIsNone(self.hub.headers("", "Authorization")[-1])
        error = self.baton("pull", "org/one", code=2, HF_TOKEN="hf_secret\r\nX-More: 1").stderr
        self.assertNotIn("secret", error)

    def test_a_proxy(self):
        self.one()
        self.hub.cdn = None
        self.hub.blobs, self.cdn.blobs = self.cdn.blobs, {}
        self.baton("pull", "org/one", HF_ENDPOINT="http://hub.invalid", http_proxy=self.hub.url)
        self.assertTrue(all(path.startswith("http://hub.invalid/") for path in self.hub.gets()))

    def test_no_server(self):
        self.hub.close()
        self.assertIn("127.0.0.1", self.baton("pull", "org/one", "--retries", "0", code=1).stderr)
        self.assertIn("HF_ENDPOINT", self.baton("pull", "org/one", code=2, HF_ENDPOINT="ftp://x").stderr)


@unittest.skipUnless(shutil.which("openssl"), "no program openssl to make a certificate with")
class Secure(Pull):
    def setUp(self):
        super().setUp()
        self.certificate = str(self.folder / "server.pem")
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj", "/CN=hub",
                        "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", self.certificate, "-out", self.certificate + ".crt"],
                       check=True, capture_output=True)
        with open(self.certificate, "ab") as file:
            file.write(pathlib.Path(self.certificate + ".crt").read_bytes())
        self.secure_cdn = self.server(None, self.certificate)
        self.hub = self.server(self.secure_cdn, self.certificate)

    def test_certificates_are_checked(self):
        data = self.one()
        self.assertEqual(self.pulled("org/one", SSL_CERT_FILE=self.certificate + ".crt").read_bytes(), data)
        done = self.baton("pull", "org/one", code=1)
        self.assertIn("certificate", done.stderr)
        self.assertNotIn("again in", done.stderr)

    def test_no_redirect_to_an_insecure_connection(self):
        self.hub.cdn = self.cdn
        self.one()
        error = self.baton("pull", "org/one", code=1, CURL_CA_BUNDLE=self.certificate + ".crt", HF_TOKEN="hf_x").stderr
        self.assertIn("not given up for an insecure one", error)
        self.assertEqual(self.cdn.requests, [])


class Hostile(Pull):
    def info(self, **changes):
        answer = {"sha": COMMIT, "siblings": [{"rfilename": "x.gguf", "size": 10, "blobId": "a" * 40}], **changes}
        self.hub.override["/api/models/org/one/revision/main"] = (200, {}, json.dumps(answer).encode())

    def refused(self, expected, code=1):
        done = self.baton("pull", "org/one", "--retries", "0", code=code)
        self.assertIn(expected, done.stderr)
        self.assertEqual([path for path in self.folder.rglob("*") if path.is_file() and path.name != "team.yaml" and not path.name.endswith(".lock")
                          and not path.name.endswith(".incomplete")], [])

    def test_names(self):
        for name in ("../../../x.gguf", "/tmp/x.gguf", "a/../../x.gguf", "a//x.gguf", "./x.gguf", "", "x\u0000.gguf", "x\n.gguf", "y" * 300 + ".gguf", 7):
            self.info(siblings=[{"rfilename": name, "size": 10, "blobId": "a" * 40}])
            self.refused("rfilename")

    def test_listings(self):
        for changes, expected in (({"sha": "../../x"}, "sha"), ({"sha": None}, "sha"), ({"siblings": {}}, "siblings"), ({"siblings": [1]}, "siblings"),
                                  ({"siblings": None}, "siblings")):
            self.info(**changes)
            self.refused(expected)
        entry = {"rfilename": "x.gguf", "size": 10, "blobId": "a" * 40}
        for changes in ({"size": -1}, {"size": 1 << 62}, {"size": 1.5}, {"blobId": "../x"}, {"blobId": "A" * 40}, {"lfs": {"sha256": "../../x"}},
                        {"lfs": {"sha256": "a" * 40}}, {"lfs": {"sha256": "a" * 64, "size": -5}}):
            self.info(siblings=[{**entry, **changes}])
            self.refused("expected")
        self.hub.override["/api/models/org/one/revision/main"] = (200, {}, b"[" * 100_000)
        self.refused("nested at most 32 deep")
        self.hub.override["/api/models/org/one/revision/main"] = (200, {}, b'{"sha": "')
        self.refused("not JSON")
        self.hub.override["/api/models/org/one/revision/main"] = (200, {}, b" " * (9 * MIB))
        self.refused("more than 8 MiB")
        self.hub.override["/api/models/org/one/revision/main"] = (200, {"Content-Encoding": "gzip"}, gzip.compress(b" " * MIB))
        self.refused("gzip")
        self.hub.override["/api/models/org/one/revision/main"] = (200, {f"X-{i}": "y" * 1000 for i in range(99)} | {"Y": "z" * 60_000}, b"{}")
        self.refused("headers")

    def test_sizes(self):
        self.info(siblings=[{"rfilename": "x.gguf", "size": 100 << 40, "blobId": "a" * 40}])
        self.refused("100.0 TiB are needed", code=4)
        data = self.one(1000)
        self.hub.override.clear()
        path = "/blob/" + hashlib.sha256(data).hexdigest()
        for body in (data + b"more", data[:-1], b""):
            self.cdn.override[path] = (200, {}, body)
            self.refused("expected the 1000 that were announced")

        # A size that only the download states.
        def large(handler):
            handler.send_response(200)
            handler.send_header("ETag", '"x"')
            if handler.command == "GET":
                handler.send_header("Content-Length", str(100 << 40))
            handler.send_header("Connection", "close")
            handler.end_headers()
            handler.wfile.write(b"GGUF" if handler.command == "GET" else b"")
            handler.close_connection = True
        self.hub.override[f"/org/one/resolve/{COMMIT}/one-Q8_0.gguf"] = large
        self.hub.knows_blobs = self.hub.knows_tree = False
        self.refused("its size was not announced", code=4)
        self.hub.override.clear()
        self.hub.knows_blobs = self.hub.knows_tree = True

        def endless(handler):
            handler.send_response(200)
            handler.send_header("Connection", "close")
            handler.end_headers()
            try:
                while True:
                    handler.wfile.write(b"x" * 10_000)
            except OSError:
                handler.close_connection = True
        self.cdn.override[path] = endless
        self.refused("more than the 1000 bytes")
        part = self.cache / "models--org--one/blobs" / (hashlib.sha256(data).hexdigest() + ".incomplete")
        part.write_bytes(data[:10])
        for content_range in ("bytes 0-989/1000", "bytes 10-999/9999", "nonsense", "bytes 10-"):
            self.cdn.override[path] = (206, {"Content-Range": content_range}, data[10:])
            self.refused("expected")

    def test_redirects(self):
        data = self.one(1000)
        path = "/blob/" + hashlib.sha256(data).hexdigest()
        for location, expected in ((path, "more than 10 redirects"), ("file:///etc/hostname", "expected https or http"),
                                   ("gopher://x/y", "redirects to"), ("http://[", "redirects to")):
            self.cdn.override[path] = (302, {"Location": location}, b"x" * 100)
            self.refused(expected)
        self.cdn.override.clear()
        self.hub.override["/org/one/resolve/%s/one-Q8_0.gguf" % COMMIT] = (200, {"X-Repo-Commit": "2" * 40}, data)
        self.refused("it is of commit")

    def test_pages_elsewhere(self):
        self.one()
        self.hub.knows_blobs = False
        self.hub.override["/api/models/org/one/tree/" + COMMIT] = (200, {"Link": '<%s/x>; rel="next"' % self.cdn.url}, b"[]")
        self.refused("expected the same host")
        self.assertEqual(self.cdn.requests, [])

    def test_words(self):
        self.one(card={"license": "mit\x1b[2J\n\u202e"})
        self.hub.override["/org/one/resolve/%s/one-Q8_0.gguf" % COMMIT] = (403, {"X-Error-Message": "no\x1b[31m"}, b"")
        done = self.baton("pull", "org/one", code=1)
        self.assertNotIn("\x1b", done.stderr)
        self.assertNotIn("\u202e", done.stderr)


class Urls(Pull):
    def setUp(self):
        super().setUp()
        self.data = gguf(300_000)
        self.cdn.blobs["/models/my model.gguf"] = self.data
        self.cdn.etags["/models/my model.gguf"] = '"v1"'
        self.url = self.cdn.url + "/models/my%20model.gguf"

    def test_pull(self):
        path = self.pulled(self.url + "?signature=secret")
        self.assertEqual((path.name, path.read_bytes()), ("my model.gguf", self.data))
        self.assertEqual(path.parent.parent, self.folder / "cache/baton/models")
        self.assertEqual(self.pulled(self.url), path)
        self.assertEqual(len(self.cdn.gets()), 1)
        error = self.baton("run", self.team, "-i", QUESTION, "--model", self.url + "?signature=secret", code=4).stderr
        self.assertIn(str(path), error)  # found; its contents are noise
        path.unlink()
        error = self.baton("run", self.team, "-i", QUESTION, "--model", self.url + "?signature=secret", code=4).stderr
        self.assertIn("run: baton pull " + self.url, error)
        self.assertNotIn("secret", error)

    def test_resumed_while_the_file_is_the_same(self):
        self.cdn.cut_after = [100_000]
        self.baton("pull", self.url, "--retries", "0", code=1)
        self.assertEqual(self.pulled(self.url).read_bytes(), self.data)
        self.assertEqual(self.cdn.headers("", "If-Range"), [None, '"v1"'])
        self.pulled(self.url).unlink()
        self.cdn.cut_after = [100_000]
        self.baton("pull", self.url, "--retries", "0", code=1)
        self.cdn.blobs["/models/my model.gguf"] = other = gguf(300_000, 2)
        self.cdn.etags["/models/my model.gguf"] = '"v2"'
        path = self.pulled(self.url)
        self.assertEqual(path.read_bytes(), other)
        self.assertEqual(self.leftovers(), [])

    def test_checksum(self):
        right = hashlib.sha256(self.data).hexdigest()
        self.assertIn(right, self.baton("pull", self.url, "--sha256", "0" * 64, code=6).stderr)
        path = self.pulled(self.url, "--sha256", right)
        self.assertEqual(path.read_bytes(), self.data)
        self.assertEqual(self.pulled(self.url, "--sha256", right), path)
        # What is there already is compared, too.
        other = gguf(300_000, 2)
        path.write_bytes(other)
        for more in ([], ["--offline"]):
            error = self.baton("pull", self.url, "--sha256", right, *more, code=6).stderr
            self.assertIn(f"is sha256:{hashlib.sha256(other).hexdigest()}, expected sha256:{right}", error)
        self.assertEqual(path.read_bytes(), other)
        self.assertEqual(self.pulled(self.url), path)
        self.baton("pull", self.url, "--sha256", "abc", code=2)
        self.baton("pull", "org/one", "--sha256", right, code=2)

    def test_what_is_no_model(self):
        self.cdn.blobs["/page.gguf"] = b"<!DOCTYPE html>"
        self.assertIn("does not begin with GGUF", self.baton("pull", self.cdn.url + "/page.gguf", code=6).stderr)
        self.cdn.blobs["/pointer.gguf"] = b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n"
        self.assertIn("pointer of Git LFS", self.baton("pull", self.cdn.url + "/pointer.gguf", code=6).stderr)
        self.assertIn("404", self.baton("pull", self.cdn.url + "/none.gguf", code=1).stderr)
        self.assertEqual(self.leftovers(), [])

    def test_parts_and_file_urls(self):
        for number in (1, 2):
            self.cdn.blobs[f"/big-0000{number}-of-00002.gguf"] = gguf(1000, number)
            (self.folder / f"big-0000{number}-of-00002.gguf").write_bytes(gguf(1000, number))
        for base in (self.cdn.url, f"file://{self.folder}"):
            path = self.pulled(base + "/big-00002-of-00002.gguf")
            self.assertEqual(path.name, "big-00001-of-00002.gguf")
            for number in (1, 2):
                self.assertEqual((path.parent / f"big-0000{number}-of-00002.gguf").read_bytes(), gguf(1000, number))
        self.baton("pull", "file:///none.gguf", code=1)
        self.baton("pull", f"file://{self.folder}", code=2)


if __name__ == "__main__":
    unittest.main()
