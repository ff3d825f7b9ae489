// SPDX-License-Identifier: Apache-2.0
// Python code that tries to leave the sandbox in every way that was thought of (escapes/*.py), with all layers and with
// each optional layer switched off, as this user and, where this user is root, as nobody.
#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>
#include <catch2/catch.hpp>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>
#include <thread>

#include "agents/tools/python_tool.h"
#include "agents/tools/sandbox/folder.h"
#include "agents/tools/sandbox/sandbox.h"
#include "engine/base/system/file.h"
#include "tests/agents/tools/sandbox/in_child.h"

namespace sandbox_escape_test {

using namespace baton;
using namespace std::chrono_literals;
namespace fs = std::filesystem;

namespace {

constexpr SandboxLayers kLayers[] = {{true, true}, {false, true}, {true, false}, {false, false}};

/// Writes to files that no call and no entry of a folder shows.
constexpr const char* kHidden =
    "import mmap, os\n"
    "kept = []\n"
    "try:\n"
    "  for i in range(40):\n"
    "    file = os.open('f', os.O_RDWR | os.O_CREAT); os.unlink('f'); os.ftruncate(file, 15 << 20)\n"
    "    with mmap.mmap(file, 15 << 20) as view:\n"
    "      for page in range(0, 15 << 20, 4096): view[page] = 1\n"
    "    kept.append(mmap.mmap(file, 4096)); os.close(file)\n"
    "except OSError as error: print(error.strerror)\n"
    "else: print('ESCAPED')";

std::string text_of(const fs::path& path) {
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

bool in_force(const Sandbox& sandbox, const std::string& layer) {
  const auto facts = sandbox.isolation();
  return std::any_of(facts.begin(), facts.end(),
                     [&](const IsolationFact& fact) { return fact.layer == layer && fact.in_force; });
}

SandboxRequest request_of(const std::string& code, const std::string& interpreter = "python3") {
  const PythonOptions options = parse_python_options({{"interpreter", interpreter}}, 10s);
  SandboxRequest request;
  request.command = {options.interpreter.string(), "-I", "-B", "-u", "-"};
  request.readable = python_files(options.interpreter);
  request.input = code;
  return request;
}

std::size_t sandbox_folders() {
  std::size_t count = 0;
  for (const auto& entry : fs::directory_iterator(fs::temp_directory_path())) {
    count += entry.path().filename().string().starts_with("baton-tool-") ? 1 : 0;
  }
  return count;
}

std::atomic<int> signals_received = 0;

/// What an escape reaches for, and whether it got there: files, sockets and signals of the host.
class Outside {
 public:
  Outside() {
    std::string name = (fs::temp_directory_path() / "baton-outside-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("no folder");
    folder_ = name;
    chmod(name.c_str(), 0755);
    std::ofstream(folder_ / "secret") << "secret";
    std::ofstream(folder_ / "readable") << "open";
    chmod((folder_ / "secret").c_str(), 0600);
    chmod((folder_ / "readable").c_str(), 0644);
    before_ = state();
    path_socket_ = bound(folder_.string() + "/mailbox");
    chmod((folder_ / "mailbox").c_str(), 0777);
    abstract_ = fmt::format("baton-mailbox-{}", getpid());
    abstract_socket_ = bound(std::string(1, '\0') + abstract_);
    signals_received = 0;
    for (const int number : {SIGIO, SIGUSR1, SIGURG}) signal(number, [](int) { ++signals_received; });
  }
  ~Outside() {
    for (const int number : {SIGIO, SIGUSR1, SIGURG}) signal(number, SIG_DFL);
    fs::remove_all(folder_);
  }
  Outside(const Outside&) = delete;
  Outside& operator=(const Outside&) = delete;

  fs::path readable() const { return folder_ / "readable"; }

  /// The definitions that stand in front of the Python code.
  std::string definitions(const Sandbox& sandbox) const {
    const auto flag = [&](const char* layer) { return in_force(sandbox, layer) ? "True" : "False"; };
    return fmt::format(
        "HOST = {}\nOUTSIDE = '{}'\nABSTRACT = '\\0{}'\nLANDLOCK = {}\nNAMESPACES = {}\nOTHER_USER = {}\n", getpid(),
        folder_.string(), abstract_, flag("Landlock"), flag("namespaces"), flag("user"));
  }

  /// Returns what happened to the host, or an empty text.
  std::string damage() const {
    std::string found;
    if (signals_received > 0) found += "a signal arrived\n";
    if (state() != before_) found += fmt::format("files changed: {}, before {}\n", state(), before_);
    char letter[16];
    for (const UniqueFd* socket : {&path_socket_, &abstract_socket_}) {
      if (recv(socket->get(), letter, sizeof(letter), MSG_DONTWAIT) >= 0) found += "a datagram arrived\n";
    }
    return found;
  }

 private:
  static UniqueFd bound(const std::string& name) {
    UniqueFd made(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    name.copy(address.sun_path, sizeof(address.sun_path));
    const auto bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size());
    if (bind(made.get(), reinterpret_cast<const sockaddr*>(&address), bytes) != 0)
      throw std::runtime_error("no socket");
    return made;
  }

  std::string state() const {
    std::string text;
    for (const char* name : {"secret", "readable"}) {
      struct stat found {};
      stat((folder_ / name).c_str(), &found);
      text += fmt::format("{} {} {:o} {} {} {}, ", name, found.st_size, found.st_mode, found.st_uid, found.st_mtime,
                          found.st_nlink);
    }
    return text;
  }

  fs::path folder_;
  std::string before_, abstract_;
  UniqueFd path_socket_, abstract_socket_;
};

struct Script {
  std::string name, text;
};

std::vector<Script> scripts() {
  const fs::path folder = fs::path(BATON_TEST_DIR) / "agents/tools/sandbox/escapes";
  const std::string common = text_of(folder / "common.py");
  std::vector<Script> list;
  for (const char* name : {"signals", "sockets", "files", "processes", "kernel"}) {
    list.push_back({name, common + text_of(folder / (std::string(name) + ".py")) + "\nprint('done')\n"});
  }
  return list;
}

/// Returns all that was not blocked, or an empty text.
std::string escapes(const std::vector<Script>& list, SandboxLayers layers) {
  const Sandbox sandbox(layers);
  std::string found;
  for (const Script& script : list) {
    const Outside outside;
    SandboxRequest request = request_of(outside.definitions(sandbox) + script.text);
    request.readable.push_back(outside.readable());
    const SandboxResult result = sandbox.run(request);
    std::istringstream lines(result.output);
    int blocked = 0;
    bool done = false;
    for (std::string line; std::getline(lines, line);) {
      if (line == "done")
        done = true;
      else if (line.starts_with("blocked "))
        ++blocked;
      else
        found += script.name + ": " + line + "\n";
    }
    if (!done || blocked < 15) found += fmt::format("{}: {} attempts, ended: {}\n", script.name, blocked, done);
    const std::string damage = outside.damage();
    if (!damage.empty()) found += script.name + ": " + damage;
  }
  return found;
}

/// Runs the checks in all combinations of layers, as this user and as nobody. `check` returns what is wrong.
void in_all_layers(const std::function<std::string(SandboxLayers)>& check) {
  for (const SandboxLayers layers : kLayers) {
    INFO("Landlock " << layers.landlock << ", namespaces " << layers.namespaces);
    CHECK(check(layers) == "");
    if (geteuid() == 0) CHECK(as_nobody([&] { return check(layers); }) == "");
  }
}

}  // namespace

TEST_CASE("sandbox: no escape succeeds") {
  const std::vector<Script> list = scripts();
  in_all_layers([&](SandboxLayers layers) { return escapes(list, layers); });
}

TEST_CASE("sandbox: what is written is bounded, and nothing stays behind") {
  const char* const bytes =
      "import os\n"
      "try:\n"
      "  for i in range(60):\n"
      "    with open(f'f{i}', 'wb') as f:\n"
      "      for _ in range(10): f.write(bytes(1 << 20))\n"
      "    os.rename(f'f{i}', f'g{i}')\n"
      "except OSError as error: print(error.strerror)\n"
      "else: print('ESCAPED')";
  const char* const unlinked =
      "import os\n"
      "files = []\n"
      "try:\n"
      "  for i in range(40):\n"
      "    files.append(os.open('f', os.O_RDWR | os.O_CREAT)); os.unlink('f'); os.write(files[-1], bytes(15 << 20))\n"
      "except OSError as error: print(error.strerror)\n"
      "else: print('ESCAPED')";
  const char* const mapped =
      "import mmap, os\n"
      "try:\n"
      "  for i in range(40):\n"
      "    file = os.open(f'f{i}', os.O_RDWR | os.O_CREAT); os.ftruncate(file, 15 << 20)\n"
      "    with mmap.mmap(file, 15 << 20) as view:\n"
      "      for page in range(0, 15 << 20, 4096): view[page] = 1\n"
      "    os.close(file)\n"
      "except OSError as error: print(error.strerror)\n"
      "else: print('ESCAPED')";
  const char* const files =
      "import os\n"
      "try:\n"
      "  for i in range(400000): os.close(os.open(f'{i}', os.O_CREAT | os.O_WRONLY))\n"
      "except OSError as error: print(error.strerror)\n"
      "else: print('ESCAPED')";
  const char* const unlisted =
      "import os\n"
      "try:\n"
      "  for i in range(400):\n"
      "    os.mkdir(f'{i}', 0o300)\n"
      "    for j in range(1000): os.close(os.open(f'{i}/{j}', os.O_CREAT | os.O_WRONLY))\n"
      "except OSError as error: print(error.strerror)\n"
      "else: print('ESCAPED')";
  // A process whose first thread has ended shows its counters to root alone.
  const char* const headless =
      "import ctypes, os, platform, threading\n"
      "def write():\n"
      "  files = []\n"
      "  try:\n"
      "    for i in range(40):\n"
      "      files.append(os.open('f', os.O_RDWR | os.O_CREAT)); os.unlink('f'); os.write(files[-1], bytes(15 << 20))\n"
      "  except OSError as error: print(error.strerror)\n"
      "  else: print('ESCAPED')\n"
      "threading.Thread(target=write).start()\n"
      "ctypes.CDLL(None).syscall(60 if platform.machine() == 'x86_64' else 93, 0)";
  const std::size_t before = sandbox_folders();
  const auto check = [&](SandboxLayers layers) {
    const Sandbox sandbox(layers);
    std::string wrong;
    for (const char* code : {bytes, unlinked, mapped, files, kHidden, unlisted, headless}) {
      SandboxResult result;
      try {
        result = sandbox.run(request_of(code));
      } catch (const std::system_error& error) {
        if (std::string(error.what()).find("cannot count") == std::string::npos) wrong += error.what();
        continue;
      }
      // A mapped file on a full file system ends the process by a signal.
      const bool full = result.output.find("No space left") != std::string::npos;
      const bool denied = result.output == "Operation not permitted\n";  // mappings of files that are not counted
      const bool ended = result.end == SandboxResult::End::signalled ||
                         (result.end == SandboxResult::End::exceeded && !result.exceeded.empty());
      if (!full && !denied && !ended) {
        wrong += fmt::format("{}\nend {}: {}\n", code, static_cast<int>(result.end), result.output);
      }
    }
    return wrong;
  };
  in_all_layers(check);
  CHECK(sandbox_folders() == before);
  if (geteuid() == 0) {
    // Where root may not read the counters of other users' processes.
    const SandboxLayers without_namespaces{true, false};
    CHECK(in_child([&] { return drop_capability(CAP_SYS_PTRACE) ? check(without_namespaces) : "cannot"; }) == "");
  }
  CHECK(sandbox_folders() == before);
}

TEST_CASE("sandbox: where writing is counted from outside, little more than the bound is written") {
  // A MiB every 10 ms, of which the host counts every 20 ms: twice the bound leaves it half a second to be late.
  const std::string code =
      "import time\n"
      "try:\n"
      "  for i in range(400):\n"
      "    with open(f'f{i % 40}', 'ab') as f: f.write(bytes(1 << 20))\n"
      "    print(i + 1, flush=True)\n"
      "    time.sleep(0.01)\n"
      "except OSError as error: print(error.strerror)\n"
      "else: print('ESCAPED')";
  constexpr int kBoundMib = 64, kLateMib = 2 * kBoundMib;
  in_all_layers([&](SandboxLayers layers) -> std::string {
    const Sandbox sandbox(layers);
    const SandboxResult result = sandbox.run(request_of(code));
    std::istringstream lines(result.output);
    int written = 0;
    for (std::string line; std::getline(lines, line);) {
      if (std::all_of(line.begin(), line.end(), [](char c) { return c >= '0' && c <= '9'; })) written = std::stoi(line);
    }
    const int max = in_force(sandbox, "namespaces") ? kBoundMib : kLateMib;
    if (written >= kBoundMib / 2 && written <= max) return {};
    return fmt::format("{} MiB written, end {}: {}", written, static_cast<int>(result.end), result.exceeded);
  });
}

TEST_CASE("sandbox: what is written is bounded in memory, too") {
  std::string name = "/dev/shm/baton-test-XXXXXX";
  if (mkdtemp(name.data()) == nullptr || chmod(name.c_str(), 01777) != 0) {
    WARN("skipped: no folder in memory");
    return;
  }
  const std::string reading =
      "import mmap\n"
      "with open('f', 'wb') as f: f.write(b'text')\n"
      "with open('f', 'rb') as f: print(mmap.mmap(f.fileno(), 4, mmap.MAP_PRIVATE, mmap.PROT_READ)[:])";
  in_all_layers([&](SandboxLayers layers) {
    return in_child([&]() -> std::string {
      setenv("TMPDIR", name.c_str(), 1);
      const Sandbox sandbox(layers);
      const SandboxResult result = sandbox.run(request_of(kHidden));
      if (result.output.find("ESCAPED") != std::string::npos) return result.output;
      return sandbox.run(request_of(reading)).output == "b'text'\n" ? "" : "cannot read";
    });
  });
  CHECK(fs::is_empty(name));
  fs::remove_all(name);
}

TEST_CASE("sandbox: a deep tree, and folders without permissions, are removed") {
  const std::string code =
      "import os\n"
      "for i in range(3000):\n"
      "  os.mkdir('d'); os.chdir('d')\n"
      "  if i % 100 == 0: open('f', 'w').close(); os.mkdir('closed', 0)\n"
      "print('deep')";
  const std::size_t before = sandbox_folders();
  in_all_layers([&](SandboxLayers layers) {
    const SandboxResult result = Sandbox(layers).run(request_of(code));
    // Where its files are counted from outside, the process may be ended for the depth of the tree.
    if (result.end == SandboxResult::End::exceeded) return std::string();
    return result.output == "deep\n" ? std::string() : result.output;
  });
  CHECK(sandbox_folders() == before);
}

TEST_CASE("sandbox: remove_tree removes what a file system can hold") {
  const fs::path outside = fs::temp_directory_path() / "baton-test-kept";
  fs::create_directories(outside);
  const auto removed = [&](int levels) {
    std::string name = (fs::temp_directory_path() / "baton-test-tree-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) return std::string("no folder");
    UniqueFd current(open(name.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    for (int i = 0; i < levels; ++i) {
      if (i % 50 == 0) {
        for (const char* sibling : {"a", "b", "closed"}) mkdirat(current.get(), sibling, 0700);
        mkdirat(current.get(), "closed/in", 0700);
        symlinkat(outside.c_str(), current.get(), "link");
        const UniqueFd file(openat(current.get(), "file", O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
        fchmodat(current.get(), "closed", 0, 0);
      }
      mkdirat(current.get(), "d", 0700);
      const UniqueFd above = std::move(current);
      current = UniqueFd(openat(above.get(), "d", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
      if (i % 7 == 0) fchmod(above.get(), 0);
    }
    if (!current) return std::string("the tree was not made");
    remove_tree(name);
    return std::string(fs::exists(name) ? "it stayed" : "");
  };
  CHECK(removed(3000) == "");
  if (geteuid() == 0) CHECK(as_nobody([&] { return removed(300); }) == "");
  CHECK(fs::exists(outside));
  fs::remove_all(outside);
}

TEST_CASE("sandbox: threads, memory and open files are bounded") {
  const std::string threads =
      "import threading, time\n"
      "threading.stack_size(32 << 10)\n"
      "try:\n"
      "  for i in range(20000): threading.Thread(target=time.sleep, args=(60,), daemon=True).start()\n"
      "except RuntimeError: print('bounded' if i <= 128 else 'ESCAPED: ' + str(i), flush=True)\n"
      "else: print('ESCAPED')\n"
      "import os; os._exit(0)";
  const std::string memory =
      "try: x = bytearray(1 << 30)\n"
      "except MemoryError: print('bounded')";
  const std::string open_files =
      "import os\n"
      "try:\n"
      "  while True: os.dup(0)\n"
      "except OSError: print('bounded')";
  in_all_layers([&](SandboxLayers layers) {
    const Sandbox sandbox(layers);
    std::string wrong;
    for (const std::string& code : {threads, memory, open_files}) {
      const SandboxResult result = sandbox.run(request_of(code));
      if (result.output != "bounded\n" && result.end != SandboxResult::End::exceeded) wrong += result.output;
    }
    return wrong;
  });
}

TEST_CASE("sandbox: a killed host takes its process with it") {
  const std::string code =
      GENERATE(as<std::string>{}, "import ctypes, time\nctypes.CDLL(None).prctl(1, 0)\nprint(1)\ntime.sleep(60)",
               // The signal belongs to the first thread: another one that becomes a program would drop it,
               "import os, sys, threading, time\n"
               "def again():\n"
               "  try: os.execv(sys.executable, [sys.executable, '-c', 'import time; time.sleep(60)'])\n"
               "  except OSError: time.sleep(60)\n"
               "threading.Thread(target=again).start()\ntime.sleep(60)",
               // and the first one may end before the others.
               "import ctypes, platform, threading, time\n"
               "threading.Thread(target=time.sleep, args=(60,)).start()\n"
               "ctypes.CDLL(None).syscall(60 if platform.machine() == 'x86_64' else 93, 0)");
  in_all_layers([&](SandboxLayers layers) -> std::string {
    // A killed host leaves its temporary folder.
    std::string scratch = (fs::temp_directory_path() / "baton-test-host-XXXXXX").string();
    if (mkdtemp(scratch.data()) == nullptr || chmod(scratch.c_str(), 0755) != 0) return "no folder";
    const pid_t host = fork();
    if (host == 0) {
      setenv("TMPDIR", scratch.c_str(), 1);
      try {
        Sandbox(layers).run(request_of(code));
      } catch (const std::exception&) {
        _exit(1);
      }
      _exit(0);
    }
    std::string child;
    // The process is the interpreter once it has its own command line.
    for (int i = 0; i < 500 && text_of("/proc/" + child + "/comm") != "python3\n"; ++i) {
      std::this_thread::sleep_for(10ms);
      std::istringstream(text_of(fmt::format("/proc/{0}/task/{0}/children", host))) >> child;
    }
    std::this_thread::sleep_for(300ms);  // for what the code does
    const bool ran = !child.empty() && fs::exists("/proc/" + child);
    kill(host, SIGKILL);
    waitpid(host, nullptr, 0);
    remove_tree(scratch);
    // A process without its first thread may have been ended, since it hides its counters.
    if (!ran) return code.find("syscall") == std::string::npos ? "the process did not run" : "";
    // Whoever inherits the process may be slow to reap it.
    const auto runs = [&] {
      const std::string state = text_of("/proc/" + child + "/stat");
      const std::string threads = text_of("/proc/" + child + "/status");
      return !state.empty() &&
             (state.find(") Z ") == std::string::npos || threads.find("Threads:\t1\n") == std::string::npos);
    };
    for (int i = 0; i < 300 && runs(); ++i) std::this_thread::sleep_for(10ms);
    return runs() ? "process " + child + " outlived its host" : "";
  });
}

TEST_CASE("sandbox: an interpreter in a home folder does not open the home") {
  const fs::path real = fs::canonical(parse_python_options({}, 10s).interpreter);
  std::string name = (fs::temp_directory_path() / "baton-test-home-XXXXXX").string();
  REQUIRE(mkdtemp(name.data()) != nullptr);
  const fs::path home = name;
  fs::permissions(home, fs::perms(0755));
  fs::create_directories(home / "bin");
  fs::create_directories(home / "lib");
  fs::copy_file(real, home / "bin/python3");
  const fs::path library = real.parent_path().parent_path() / "lib";
  for (const auto& entry : fs::directory_iterator(library)) {
    if (entry.path().filename().string().starts_with("python3")) {
      fs::create_directory_symlink(entry.path(), home / "lib" / entry.path().filename());
    }
  }
  const fs::path secrets[] = {home / "diary", home / "bin/key", home / "library/key", home / "lib.key"};
  std::string code = "import json, math\nprint('ran')\n", expected = "ran\n";
  for (const fs::path& secret : secrets) {
    fs::create_directories(secret.parent_path());
    std::ofstream(secret) << "secret";
    code += "try: print(open('" + secret.string() + "').read())\nexcept OSError: print('closed')\n";
    expected += "closed\n";
  }
  in_all_layers([&](SandboxLayers layers) -> std::string {
    const Sandbox sandbox(layers);
    if (!in_force(sandbox, "Landlock") && !in_force(sandbox, "namespaces")) return {};
    SandboxRequest request = request_of(code, (home / "bin/python3").string());
    for (const fs::path& path : python_files(real)) request.readable.push_back(path);  // what the links lead to
    const std::string output = sandbox.run(request).output;
    return output == expected ? "" : output;
  });
  fs::remove_all(home);
}

TEST_CASE("sandbox: ordinary code works in all layers") {
  const std::string code = text_of(fs::path(BATON_TEST_DIR) / "agents/tools/sandbox/escapes/ordinary.py");
  in_all_layers([&](SandboxLayers layers) {
    const SandboxResult result = Sandbox(layers).run(request_of(code));
    return result.output == "alarm\nno processes\nworks\n" ? std::string() : result.output;
  });
}

}  // namespace sandbox_escape_test
