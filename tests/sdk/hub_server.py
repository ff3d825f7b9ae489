# SPDX-License-Identifier: Apache-2.0
"""A hub of models on this machine, for tests: the part of the Hugging Face API that `baton pull` uses, and ways to misbehave."""

import hashlib
import http.server
import json
import re
import ssl
import threading
import time
import urllib.parse

COMMIT = "1f" * 20


def git_sha1(data):
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


class Repository:
    def __init__(self, files, large=(".gguf", ".safetensors"), card=None, **info):
        self.files = dict(files)
        self.large = large
        self.commit = COMMIT
        self.info = {"cardData": card or {"license": "apache-2.0"}, "gated": False, **info}

    def is_large(self, name):
        return name.endswith(self.large)

    def checksum(self, name):
        data = self.files[name]
        return hashlib.sha256(data).hexdigest() if self.is_large(name) else git_sha1(data)


class Server:
    """One address, with TLS where `certificate` names a file of key and certificate. Files of Git LFS are redirected to
    `cdn`, a server of the same kind elsewhere."""

    def __init__(self, cdn=None, certificate=None):
        self.repositories = {}
        self.cdn = cdn
        self.blobs = {}        # path -> bytes, of plain URLs and of the CDN
        self.etags = {}        # path -> ETag of plain URLs
        self.requests = []     # (method, path, headers)
        self.answers = []      # the next answers to GET of files: (status, headers) each, before anything else
        self.override = {}     # path (without query) -> (status, headers, body) or a function of the handler
        self.cut_after = []    # bytes after which the next bodies end, the connection with them
        self.ignores_range = False
        self.knows_blobs = True
        self.knows_tree = True
        self.page = 1000       # entries of a page of the tree
        self.bytes_per_second = 0
        self.lock = threading.Lock()
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                outer.handle(self)

            do_HEAD = do_GET

            def log_message(self, *_):
                pass

        class Quiet(http.server.ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *_):  # a client that went away
                pass

        self.server = Quiet(("127.0.0.1", 0), Handler)
        self.url = "%s://127.0.0.1:%d" % ("https" if certificate else "http", self.server.server_address[1])
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()

    def add(self, name, repository):
        self.repositories[name] = repository
        for file in repository.files:
            if repository.is_large(file):
                (self.cdn or self).blobs["/blob/" + repository.checksum(file)] = repository.files[file]
        return repository

    def gets(self, pattern=""):
        """Paths of the GET requests that match."""
        return [path for method, path, _ in self.requests if method == "GET" and re.search(pattern, path)]

    def headers(self, pattern, name):
        return [headers.get(name) for method, path, headers in self.requests if method == "GET" and re.search(pattern, path)]

    # --- answers

    def handle(self, handler):
        path = handler.path
        if path.startswith("http://"):  # as a proxy
            path = "/" + path.split("/", 3)[3]
        with self.lock:
            self.requests.append((handler.command, handler.path, dict(handler.headers)))
        plain = urllib.parse.unquote(path.split("?")[0])
        if plain in self.override:
            answer = self.override[plain]
            return answer(handler) if callable(answer) else self.reply(handler, *answer)
        if match := re.fullmatch(r"/api/models/([^/]+/[^/]+)/revision/(.+)", plain):
            return self.info(handler, *match.groups(), "blobs=true" in path)
        if match := re.fullmatch(r"/api/models/([^/]+/[^/]+)/tree/(.+)", plain):
            return self.tree(handler, match[1], path)
        if match := re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", plain):
            return self.resolve(handler, match[1], match[3])
        if plain in self.blobs:
            return self.body(handler, self.blobs[plain], {"ETag": self.etags.get(plain, '"of the cdn"')})
        self.reply(handler, 404, {"X-Error-Code": "EntryNotFound"})

    def reply(self, handler, status, headers=None, body=b""):
        handler.send_response(status)
        for name, value in (headers or {}).items():
            handler.send_header(name, value)
        if "Content-Length" not in (headers or {}):
            handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        if handler.command != "HEAD":
            handler.wfile.write(body)

    def json(self, handler, value, headers=None):
        self.reply(handler, 200, {"Content-Type": "application/json", **(headers or {})}, json.dumps(value).encode())

    def repository(self, handler, name):
        if name not in self.repositories:
            # As the hub: who has no token is not told what exists.
            known = "Authorization" in handler.headers
            self.reply(handler, 404 if known else 401, {"X-Error-Code": "RepoNotFound", "X-Error-Message": "Repository not found"})
        return self.repositories.get(name)

    def info(self, handler, name, revision, blobs):
        if (repository := self.repository(handler, name)) is None:
            return
        if revision not in ("main", repository.commit):
            return self.reply(handler, 404, {"X-Error-Code": "RevisionNotFound"})
        siblings = []
        for file, data in repository.files.items():
            sibling = {"rfilename": file}
            if blobs and self.knows_blobs:
                sibling.update(size=len(data), blobId=git_sha1(data))
                if repository.is_large(file):
                    sibling["lfs"] = {"sha256": repository.checksum(file), "size": len(data), "pointerSize": 134}
            siblings.append(sibling)
        self.json(handler, {"id": name, "sha": repository.commit, "siblings": siblings, **repository.info})

    def tree(self, handler, name, path):
        if not self.knows_tree:
            return self.reply(handler, 404)
        repository = self.repositories[name]
        begin = int(dict(urllib.parse.parse_qsl(path.partition("?")[2])).get("cursor", 0))
        entries = [{"type": "directory", "path": "folder", "oid": "0" * 40, "size": 0}]
        for file, data in repository.files.items():
            entry = {"type": "file", "path": file, "size": len(data), "oid": git_sha1(data)}
            if repository.is_large(file):
                entry["lfs"] = {"oid": repository.checksum(file), "size": len(data), "pointerSize": 134}
            entries.append(entry)
        headers = {}
        if begin + self.page < len(entries):
            headers["Link"] = '<%s%s?recursive=true&cursor=%d>; rel="next"' % (self.url, path.split("?")[0], begin + self.page)
        self.json(handler, entries[begin:begin + self.page], headers)

    def resolve(self, handler, name, file):
        repository = self.repositories[name]
        if file not in repository.files:
            return self.reply(handler, 404, {"X-Error-Code": "EntryNotFound"})
        data, checksum = repository.files[file], repository.checksum(file)
        headers = {"X-Repo-Commit": repository.commit, "ETag": '"%s"' % checksum}
        if repository.is_large(file) and self.cdn:
            headers.update({"Location": self.cdn.url + "/blob/" + checksum, "X-Linked-ETag": '"%s"' % checksum,
                            "X-Linked-Size": str(len(data)), "ETag": '"of the redirect"'})
            return self.reply(handler, 302, headers)
        self.body(handler, data, headers)

    def body(self, handler, data, headers):
        if self.answers and handler.command == "GET":
            return self.reply(handler, *self.answers.pop(0))
        status, total = 200, len(data)
        match = re.fullmatch(r"bytes=(\d+)-", handler.headers.get("Range", ""))
        condition = handler.headers.get("If-Range")
        if match and not self.ignores_range and condition in (None, headers.get("ETag")):
            begin = int(match[1])
            if begin >= total:
                return self.reply(handler, 416, {"Content-Range": "bytes */%d" % total})
            status, data = 206, data[begin:]
            headers = {**headers, "Content-Range": "bytes %d-%d/%d" % (begin, total - 1, total)}
        handler.send_response(status)
        for name, value in {"Content-Length": str(len(data)), **headers}.items():
            handler.send_header(name, value)
        handler.end_headers()
        if handler.command == "HEAD":
            return
        cut = self.cut_after.pop(0) if self.cut_after else None
        self.send_slowly(handler, data[:cut])
        if cut is not None:
            handler.close_connection = True

    def send_slowly(self, handler, data):
        if not self.bytes_per_second:
            return handler.wfile.write(data)
        step = max(1, self.bytes_per_second // 20)
        for begin in range(0, len(data), step):
            handler.wfile.write(data[begin:begin + step])
            handler.wfile.flush()
            time.sleep(0.05)
