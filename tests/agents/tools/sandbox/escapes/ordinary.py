# SPDX-License-Identifier: Apache-2.0
"""What code that a model wrote may well do, and what has to work in the sandbox."""

import asyncio
import concurrent.futures
import datetime
import decimal
import gzip
import hashlib
import json
import math
import os
import pathlib
import random
import re
import resource
import shutil
import signal
import sqlite3
import statistics
import subprocess
import tempfile
import time
import uuid
import zipfile

assert math.isclose(statistics.mean([1, 2, 3]), 2)
assert str(decimal.Decimal("0.1") + decimal.Decimal("0.2")) == "0.3"
assert re.findall(r"\d+", "6 x 7") == ["6", "7"]
assert hashlib.sha256(b"").hexdigest().startswith("e3b0")
random.seed(1)
assert 0 <= random.random() < 1 and uuid.uuid4()
assert datetime.datetime.now().astimezone().tzinfo
assert os.environ["HOME"] == os.getcwd() and os.cpu_count() >= 1 and os.listdir(".") == []

pathlib.Path("a").write_text(json.dumps({"x": [1, 2]}))
assert json.loads(pathlib.Path("a").read_text()) == {"x": [1, 2]}
os.makedirs("d/e")
os.rename("a", "d/e/b")
shutil.copyfile("d/e/b", "c")
shutil.move("c", "d/c")
assert sorted(os.listdir("d")) == ["c", "e"]
shutil.rmtree("d")
with tempfile.TemporaryDirectory() as folder, open(folder + "/f", "w+") as file:
    file.write("x")
    file.truncate(0)
with tempfile.NamedTemporaryFile() as file:
    file.write(b"x")
with open(os.devnull, "w") as file:
    file.write("x")
assert open(os.devnull).read() == "" and len(open("/dev/urandom", "rb").read(4)) == 4
resource.setrlimit(resource.RLIMIT_STACK, resource.getrlimit(resource.RLIMIT_STACK))
with gzip.open("text.gz", "wt") as file:
    file.write("text")
with zipfile.ZipFile("z.zip", "w") as archive:
    archive.writestr("name", "text")
with zipfile.ZipFile("z.zip") as archive:
    archive.extractall("out")
base = sqlite3.connect("base.db")
base.execute("create table t (x)")
base.execute("insert into t values (1)")
base.commit()
assert base.execute("select * from t").fetchall() == [(1,)]

with concurrent.futures.ThreadPoolExecutor(8) as pool:
    assert sum(pool.map(abs, range(-50, 0))) == 1275


async def sleeper():
    await asyncio.sleep(0.01)
    return 5


async def both():
    return await asyncio.gather(sleeper(), sleeper())


assert asyncio.run(both()) == [5, 5]
signal.signal(signal.SIGALRM, lambda *_: print("alarm"))
signal.setitimer(signal.ITIMER_REAL, 0.01)
time.sleep(0.1)
try:
    subprocess.run(["true"])
except PermissionError:
    print("no processes")
try:
    import numpy
except ImportError:
    pass
else:
    assert (numpy.ones((50, 50)) @ numpy.ones((50, 50))).sum() == 125000
print("works")
