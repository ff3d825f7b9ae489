// SPDX-License-Identifier: Apache-2.0
#include "agents/tools/python_tool.h"

#include <sys/prctl.h>
#include <sys/resource.h>
#include <catch2/catch.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>

#include "agents/tools/sandbox/sandbox.h"

namespace python_tool_test {

using namespace baton;
using namespace std::chrono_literals;

namespace {

ToolCall call_of(const std::string& code, std::chrono::milliseconds timeout = 10s) {
  ToolCall call;
  call.text = "Let me compute.\n```python\n" + code + "\n```\n";
  call.timeout = timeout;
  return call;
}

ToolResult run(const std::string& code, std::chrono::milliseconds timeout = 10s) {
  return make_python_tool()->call(call_of(code, timeout));
}

std::size_t entries(const std::filesystem::path& folder) {
  return static_cast<std::size_t>(
      std::distance(std::filesystem::directory_iterator(folder), std::filesystem::directory_iterator()));
}

std::size_t tool_folders() {
  std::size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(std::filesystem::temp_directory_path())) {
    count += entry.path().filename().string().starts_with("baton-tool-") ? 1 : 0;
  }
  return count;
}

/// Children of this process that nobody has waited for.
std::size_t children() {
  std::size_t count = 0;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::ifstream file(task.path() / "children");
    for (std::string pid; file >> pid;) ++count;
  }
  return count;
}

}  // namespace

TEST_CASE("python shows what the code prints") {
  const ToolResult result = run("x = 6 * 7\nprint('x =', x)\nprint('é', 'done')");
  CHECK(result.ok);
  CHECK(result.text == "x = 42\né done");
  CHECK(run("pass").text == "[no output]");
}

TEST_CASE("python: the last block counts, and no block is said") {
  const auto tool = make_python_tool();
  ToolCall call;
  call.text = "```\nprint(1)\n```\nbetter:\n```py\nprint(2)\n```\n";
  CHECK(tool->call(call).text == "2");
  call.text = "I think it is 2.";
  const ToolResult none = tool->call(call);
  CHECK_FALSE(none.ok);
  CHECK(none.text.find("no code") != std::string::npos);
}

TEST_CASE("python: an exception is shown with its traceback") {
  const ToolResult result = run("print('before')\nraise ValueError('bad')");
  CHECK_FALSE(result.ok);
  CHECK(result.text.starts_with("before\nTraceback"));
  CHECK(result.text.find("ValueError: bad") != std::string::npos);
  CHECK(result.text.ends_with("[ended with exit code 1]"));
}

TEST_CASE("python: code that hangs is ended, with what it had printed") {
  const auto begin = std::chrono::steady_clock::now();
  const ToolResult result = run(
      "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nprint('start')\nwhile True: time.sleep(1)",
      1000ms);
  CHECK(std::chrono::steady_clock::now() - begin < 3s);
  CHECK_FALSE(result.ok);
  CHECK(result.text == "start\n[stopped: ran longer than 1000 ms]");
}

TEST_CASE("python: every time limit that can be written is one") {
  const std::string limit = "import resource\nprint(resource.getrlimit(resource.RLIMIT_CPU)[0])";
  const auto longest = std::to_string(10 * 365 * 24 * 3600 + 1);  // ten years, or what the host may use
  rlimit host{};
  REQUIRE(getrlimit(RLIMIT_CPU, &host) == 0);
  if (host.rlim_max == RLIM_INFINITY) CHECK(run(limit, std::chrono::milliseconds::max()).text == longest);
  CHECK(run("print(1)", std::chrono::milliseconds::max()).text == "1");
  for (const auto below : {std::chrono::milliseconds::min(), std::chrono::milliseconds(-1)}) {
    const ToolResult result = run("while True: pass", below);
    CHECK_FALSE(result.ok);
    CHECK(result.text.find("[stopped: ran longer than") != std::string::npos);
  }
}

TEST_CASE("python: a stop is honoured at once") {
  std::stop_source source;
  ToolCall call = call_of("while True: pass");
  call.stop = source.get_token();
  std::chrono::steady_clock::time_point stopped;
  std::thread stopper([&] {
    std::this_thread::sleep_for(300ms);
    stopped = std::chrono::steady_clock::now();
    source.request_stop();
  });
  const ToolResult result = make_python_tool()->call(call);
  stopper.join();
  CHECK(std::chrono::steady_clock::now() - stopped < 1s);
  CHECK(result.text == "[stopped]");
  CHECK(make_python_tool()->call(call).text == "[stopped]");  // stopped before it began
}

TEST_CASE("python: no other processes") {
  for (const char* code :
       {"import os\nos.fork()", "import os\nwhile True: os.fork()", "import subprocess\nsubprocess.run(['ls'])",
        "import os\nos.posix_spawn('/bin/ls', ['ls'], {})",
        "import multiprocessing as m\nm.Process(target=print).start()"}) {
    const ToolResult result = run(code);
    CHECK_FALSE(result.ok);
    CHECK(result.text.find("Operation not permitted") != std::string::npos);
  }
  const ToolResult daemon =
      run("import os\ntry:\n  if os.fork() == 0:\n    os.setsid()\n    os.fork()\nexcept OSError: print('alone')");
  CHECK(daemon.text == "alone");
  CHECK(run("import threading\nt = threading.Thread(target=lambda: print('thread'))\nt.start()\nt.join()").text ==
        "thread");
}

TEST_CASE("python: no network, no signals to others") {
  CHECK(
      run("import socket\ntry: socket.create_connection(('127.0.0.1', 80), 1)\nexcept PermissionError: print('denied')")
          .text == "denied");
  CHECK(run("import socket\ntry: socket.socket(socket.AF_UNIX)\nexcept PermissionError: print('denied')").text ==
        "denied");
  CHECK(run("import os\ntry: os.kill(os.getppid(), 9)\nexcept PermissionError: print('denied')").text == "denied");
  CHECK(run("import fcntl, os\nr, w = os.pipe()\ntry: fcntl.fcntl(r, fcntl.F_SETOWN, os.getppid())\nexcept "
            "PermissionError: print('denied')")
            .text == "denied");
  CHECK(run("import os, resource\ntry: resource.prlimit(1, resource.RLIMIT_NOFILE, (8, 8))\nexcept "
            "PermissionError: print('denied')")
            .text == "denied");
}

TEST_CASE("python: system calls newer than the filter are not there") {
  const std::string begin = "import ctypes\nlibc = ctypes.CDLL(None, use_errno=True)\n";
  CHECK(run(begin + "print(libc.syscall(462, 0, 0, 0), ctypes.get_errno())").text == "-1 38");  // mseal, harmless
  CHECK(run(begin + "print(libc.syscall(452, -100, b'.', 0o777, 0))").text == "-1");            // fchmodat2
}

TEST_CASE("python: a bare environment, an empty folder, no descriptors") {
  setenv("BATON_TEST_SECRET", "hidden", 1);
  CHECK(run("import os\nprint(os.environ.get('BATON_TEST_SECRET'), os.listdir('.'), os.getcwd() == os.environ['HOME'])")
            .text == "None [] True");
  const std::ifstream open_file("/proc/self/status");
  CHECK(
      run("import os\nfor fd in range(3, 64):\n  try: os.fstat(fd); print('open', fd)\n  except OSError: pass").text ==
      "[no output]");
  CHECK(run("open('x', 'w').write('y')\nprint(open('x').read())").text == "y");
  unsetenv("BATON_TEST_SECRET");
}

TEST_CASE("python: files of the host are out of reach") {
  const auto facts = Sandbox().isolation();
  const bool confined = std::any_of(facts.begin(), facts.end(), [](const IsolationFact& fact) {
    return (fact.layer == "Landlock" || fact.layer == "namespaces") && fact.in_force;
  });
  if (!confined) {
    WARN("skipped: this system has neither Landlock nor namespaces");
    return;
  }
  const std::filesystem::path folder = std::filesystem::temp_directory_path() / "baton-test-outside";
  std::filesystem::create_directory(folder);
  std::ofstream(folder / "file") << "secret";
  const std::string denied = "\nexcept OSError: print('denied')";
  for (const std::string& action :
       {"open('" + (folder / "file").string() + "').read()", "open('" + (folder / "new").string() + "', 'w')",
        "import os; os.remove('" + (folder / "file").string() + "')",
        "import os; os.truncate('" + (folder / "file").string() + "', 0)",
        "import os; os.chmod('" + (folder / "file").string() + "', 0)", std::string("import os; os.listdir('/home')"),
        std::string("open('/etc/passwd')"), std::string("import os; open('/proc/%d/environ' % os.getppid()).read()")}) {
    INFO(action);
    CHECK(run("try: " + action + denied).text == "denied");
  }
  CHECK(std::filesystem::exists(folder / "file"));
  std::filesystem::remove_all(folder);
}

TEST_CASE("python: memory, file and output limits") {
  ToolCall call = call_of("x = bytearray(1 << 30)");
  call.options["memory"] = "256MiB";
  const ToolResult memory = make_python_tool()->call(call);
  CHECK_FALSE(memory.ok);
  CHECK(memory.text.find("MemoryError") != std::string::npos);

  CHECK(run("f = open('x', 'wb')\ntry:\n  for i in range(64): f.write(b'x' * (1 << 20)); f.flush()\nexcept OSError as "
            "e: print(e.strerror)")
            .text == "File too large");

  const ToolResult longer = run("for i in range(100000): print(i)");
  CHECK(longer.ok);
  CHECK(longer.text.size() < (64 << 10) + 100);
  CHECK(longer.text.starts_with("0\n1\n2\n"));
  CHECK(longer.text.find("bytes left out ...]") != std::string::npos);
  CHECK(longer.text.ends_with("\n99999"));

  const ToolResult flood = run("while True: print('x' * 1000)");
  CHECK_FALSE(flood.ok);
  CHECK(flood.text.ends_with("[stopped: too much output]"));
  CHECK(run("import os\nos.write(1, b'a\\xff\\xfe b')").text == "a\xEF\xBF\xBD\xEF\xBF\xBD b");
}

TEST_CASE("python: options are checked") {
  const auto tool = make_python_tool();
  CHECK(tool->check({}).empty());
  CHECK(tool->check({{"timeout", "30s"}, {"memory", "1GiB"}, {"interpreter", "python3"}}).empty());
  CHECK(tool->check({{"timeout", "1.5m"}, {"memory", "0.5GiB"}}).empty());  // as everywhere in a workflow
  CHECK(tool->check({{"timeout", "soon"}}) == "timeout: expected a duration above 0 such as 30s, found 'soon'");
  CHECK(tool->check({{"timeout", "0s"}}) == "timeout: expected a duration above 0 such as 30s, found '0s'");
  CHECK(tool->check({{"memory", "0MiB"}}) == "memory: expected a size such as 4GiB, found '0MiB'");
  CHECK(tool->check({{"interpreter", "no-such-python"}}) ==
        "interpreter: no program 'no-such-python' was found (scripts do not count)");
  CHECK(tool->check({{"colour", "red"}}).starts_with("unknown option 'colour'"));
}

TEST_CASE("python: many runs leave nothing behind") {
  const auto tool = make_python_tool();
  tool->call(call_of("print(1)"));
  const std::size_t files = entries("/proc/self/fd"), folders = tool_folders();
  std::vector<std::jthread> threads;
  std::atomic<int> good = 0;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 50; ++i) {
        const ToolResult result =
            tool->call(call_of("open('junk', 'w').write('x')\nprint(" + std::to_string(t * 100 + i) + ")"));
        good += result.text == std::to_string(t * 100 + i) ? 1 : 0;
      }
    });
  }
  threads.clear();
  CHECK(good == 200);
  CHECK(entries("/proc/self/fd") == files);
  CHECK(tool_folders() == folders);
  CHECK(children() == 0);
  CHECK(prctl(PR_GET_DUMPABLE) == 1);  // as before, also where a child became another user
}

}  // namespace python_tool_test
