// SPDX-License-Identifier: Apache-2.0
// The sandbox in hosts that lack rights or resources, or give them up.
#include <fcntl.h>
#include <fmt/format.h>
#include <linux/filter.h>
#include <linux/landlock.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <catch2/catch.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>
#include <utility>

#include "agents/tools/python_tool.h"
#include "agents/tools/sandbox/folder.h"
#include "agents/tools/sandbox/sandbox.h"
#include "engine/base/system/file.h"
#include "tests/agents/tools/sandbox/in_child.h"

namespace sandbox_host_test {

using namespace baton;
using namespace std::chrono_literals;
namespace fs = std::filesystem;

namespace {

constexpr SandboxLayers kLayers[] = {{true, true}, {false, true}, {true, false}, {false, false}};

SandboxRequest request_of(const std::string& code) {
  const PythonOptions options = parse_python_options({}, 10s);
  SandboxRequest request;
  request.command = {options.interpreter.string(), "-I", "-B", "-u", "-"};
  request.readable = python_files(options.interpreter);
  request.input = code;
  return request;
}

/// Returns why code does not run, or an empty text.
std::string refusal(const Sandbox& sandbox) {
  try {
    const std::string output = sandbox.run(request_of("print(6 * 7)")).output;
    return output == "42\n" ? "" : "output: " + output;
  } catch (const std::exception& error) {
    return error.what();
  }
}

std::string name_of(SandboxLayers layers) {
  return fmt::format("Landlock {}, namespaces {}: ", layers.landlock, layers.namespaces);
}

IsolationFact fact_of(const std::vector<IsolationFact>& facts, const std::string& layer) {
  for (const IsolationFact& fact : facts) {
    if (fact.layer == layer) return fact;
  }
  return {};
}

bool has_namespaces(const Sandbox& sandbox) { return fact_of(sandbox.isolation(), "namespaces").in_force; }

/// A folder for temporary files, of which nothing may stay.
class Scratch {
 public:
  Scratch() {
    std::string name = (fs::temp_directory_path() / "baton-test-scratch-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr || chmod(name.c_str(), 01777) != 0) throw std::runtime_error("no folder");
    path_ = name;
  }
  ~Scratch() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  const fs::path& path() const { return path_; }
  bool empty() const { return fs::is_empty(path_); }

 private:
  fs::path path_;
};

/// Children of this process that nobody has waited for.
std::string children() {
  std::string found;
  for (const auto& task : fs::directory_iterator("/proc/self/task")) {
    std::ifstream file(task.path() / "children");
    for (std::string id; file >> id;) found += " " + id;
  }
  return found;
}

void ignore_signal(int) {}

}  // namespace

TEST_CASE("sandbox: root without some capability ends what it starts and removes its folder") {
  if (geteuid() != 0) {
    WARN("skipped: this user is not root");
    return;
  }
  const int capability =
      GENERATE(CAP_KILL, CAP_CHOWN, CAP_SETUID, CAP_SETGID, CAP_DAC_OVERRIDE, CAP_FOWNER, CAP_SYS_ADMIN, CAP_SETPCAP);
  const Scratch scratch;
  for (const SandboxLayers layers : kLayers) {
    INFO("capability " << capability << ", " << name_of(layers));
    CHECK(in_child([&]() -> std::string {
            setenv("TMPDIR", scratch.path().c_str(), 1);
            if (!drop_capability(capability)) return "the capability was not dropped";
            const Sandbox sandbox(layers);
            const std::string refused = refusal(sandbox);
            if (!refused.empty()) return refused;
            SandboxRequest request = request_of("import os\nos.makedirs('a/b')\nopen('a/b/c', 'w')\nwhile True: pass");
            request.timeout = 300ms;
            if (sandbox.run(request).end != SandboxResult::End::timed_out) return "it did not time out";
            const std::string running = children();
            return running.empty() ? "" : "still there:" + running;
          }) == "");
    CHECK(scratch.empty());
  }
}

TEST_CASE("sandbox: root that cannot give a folder to another user does without that user") {
  for (const SandboxLayers layers : kLayers) {
    const std::string problem = in_child([&]() -> std::string {
      if (!become_root_of_own_namespace()) return "skipped";
      const Sandbox sandbox(layers);
      const IsolationFact user = fact_of(sandbox.isolation(), "user");
      return user.in_force || user.text.find(std::strerror(EINVAL)) == std::string::npos ? user.text : refusal(sandbox);
    });
    INFO(name_of(layers));
    if (problem == "skipped") {
      WARN("skipped: no user namespaces here");
      return;
    }
    CHECK(problem == "");
  }
}

TEST_CASE("sandbox: a host may give up its rights between two runs") {
  if (geteuid() != 0) {
    WARN("skipped: this user is not root");
    return;
  }
  for (const SandboxLayers layers : kLayers) {
    INFO(name_of(layers));
    CHECK(in_child([&]() -> std::string {
            const Sandbox sandbox(layers);
            const std::string as_root = refusal(sandbox);
            if (!as_root.empty()) return as_root;
            return become_nobody() ? refusal(sandbox) : "not nobody";
          }) == "");
  }
}

TEST_CASE("sandbox: too many namespaces at the moment are no lack of rights") {
  const std::string problem = in_child([]() -> std::string {
    const fs::path setting = "/proc/sys/user/max_mnt_namespaces";
    if (!become_root_of_own_namespace() || !has_namespaces(Sandbox({false, true}))) return "skipped";
    if (!write_to(setting, "1") || unshare(CLONE_NEWNS) != 0) return "skipped";
    const Sandbox sandbox({false, true});
    try {
      sandbox.isolation();
      return "a lack of namespaces passed for a lack of rights";
    } catch (const std::exception& error) {
      if (std::string(error.what()).find(std::strerror(ENOSPC)) == std::string::npos) return error.what();
    }
    if (!write_to(setting, "100")) return "the setting stayed";
    if (!has_namespaces(sandbox)) return "the lack of namespaces was remembered";
    // None at all is the system's choice.
    if (!write_to(setting, "0")) return "the setting stayed";
    const Sandbox other({false, true});
    return has_namespaces(other) ? "namespaces are in force without any" : refusal(other);
  });
  if (problem == "skipped") {
    WARN("skipped: no user namespaces here");
    return;
  }
  CHECK(problem == "");
}

TEST_CASE("sandbox: a full file system is no lack of rights") {
  const Scratch scratch;
  for (int entries = 4; entries < 60; entries += 1) {
    const std::string problem = in_child([&]() -> std::string {
      if (geteuid() != 0 && !become_root_of_own_namespace()) return "skipped";
      const auto mounted = [&](const std::string& options, unsigned long flags) {
        return mount("tmpfs", scratch.path().c_str(), "tmpfs", flags, options.c_str()) == 0;
      };
      if (unshare(CLONE_NEWNS) != 0 || mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
          !mounted(fmt::format("mode=1777,nr_inodes={}", entries), 0)) {
        return "skipped";
      }
      setenv("TMPDIR", scratch.path().c_str(), 1);
      const Sandbox sandbox({false, true});
      bool before = true;
      try {
        before = has_namespaces(sandbox);
      } catch (const std::exception&) {
      }
      if (!mounted("nr_inodes=10000", MS_REMOUNT)) return "the file system stayed full";
      const Sandbox other({false, true});
      if (!before && has_namespaces(other)) return "a full file system passed for a lack of rights";
      return has_namespaces(sandbox) == has_namespaces(other) ? "" : "a full file system was remembered";
    });
    if (problem == "skipped") {
      WARN("skipped: no mounts here");
      return;
    }
    INFO(entries << " entries");
    CHECK(problem == "");
  }
}

TEST_CASE("sandbox: a lack of file descriptors is no lack of rights, and leaves no folder behind") {
#ifdef __SANITIZE_ADDRESS__
  WARN("skipped: the check of virtual calls that UBSan does needs file descriptors");
  return;
#endif
  const Scratch scratch;
  for (const SandboxLayers layers : kLayers) {
    for (int more = 0; more < 14; ++more) {
      INFO(name_of(layers) << more << " descriptors more");
      CHECK(in_child([&]() -> std::string {
              setenv("TMPDIR", scratch.path().c_str(), 1);
              const Sandbox reference(layers), sandbox(layers);
              const auto facts = reference.isolation();
              rlimit limit{};
              getrlimit(RLIMIT_NOFILE, &limit);
              const rlim_t before = std::exchange(
                  limit.rlim_cur, static_cast<rlim_t>(UniqueFd(open("/dev/null", O_RDONLY | O_CLOEXEC)).get() + more));
              setrlimit(RLIMIT_NOFILE, &limit);
              std::string refused;
              try {
                sandbox.isolation();
              } catch (const std::exception& error) {
                refused = error.what();
              }
              const std::string run = refusal(sandbox);
              limit.rlim_cur = before;
              setrlimit(RLIMIT_NOFILE, &limit);
              for (const std::string& reason : {refused, run}) {
                if (!reason.empty() && reason.find(std::strerror(EMFILE)) == std::string::npos) return reason;
              }
              const auto found = sandbox.isolation();
              for (const IsolationFact& fact : facts) {
                if (fact_of(found, fact.layer).in_force != fact.in_force) return fact.layer + " was lost";
              }
              return refusal(sandbox);
            }) == "");
      CHECK(scratch.empty());
    }
  }
}

TEST_CASE("sandbox: what cannot be counted is not run") {
  const std::string problem = in_child([]() -> std::string {
    if (geteuid() != 0 && !become_root_of_own_namespace()) return "skipped";
    const SandboxRequest request = request_of("print(1)");
    if (unshare(CLONE_NEWNS) != 0 || mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        mount("tmpfs", "/proc", "tmpfs", 0, "size=4096") != 0) {
      return "skipped";
    }
    const Sandbox sandbox({true, false});
    try {
      return "it ran: " + sandbox.run(request).output;
    } catch (const std::exception& error) {
      const std::string text = error.what();
      return text.find("cannot count") != std::string::npos && text.find(std::strerror(ENOENT)) != std::string::npos
                 ? ""
                 : text;
    }
  });
  if (problem == "skipped") {
    WARN("skipped: no mounts here");
    return;
  }
  CHECK(problem == "");
}

TEST_CASE("sandbox: folders that vanish while files are counted hide none") {
  SandboxFolder folder;
  for (int i = 0; i < 300; ++i) std::ofstream(folder.path() / std::to_string(i));
  std::atomic<bool> counted = false;
  std::jthread churn([&] {
    while (!counted) {
      for (const char* name : {"a", "b", "c", "d"}) {
        mkdir((folder.path() / name).c_str(), 0700);
        rmdir((folder.path() / name).c_str());
      }
    }
  });
  int missed = 0;
  for (int i = 0; i < 1000; ++i) missed += folder.exceeds(200, 1 << 30) == "more than 200 files" ? 0 : 1;
  CHECK(folder.exceeds(400, 1 << 30) == "");
  counted = true;
  CHECK(missed == 0);
}

TEST_CASE("sandbox: bounds of a folder") {
  SandboxFolder folder;
  CHECK(folder.exceeds(0, 0) == "");
  std::ofstream(folder.path() / "file") << std::string(1 << 20, 'x');
  CHECK(folder.exceeds(0, 2 << 20) == "more than 0 files");
  CHECK(folder.exceeds(1, 2 << 20) == "");
  CHECK(folder.exceeds(1, 1 << 19) == "more than 0 MiB in files");
  fs::path deep = folder.path();
  for (int i = 0; i < 64; ++i) fs::create_directory(deep /= "d");
  CHECK(folder.exceeds(100, 2 << 20) == "");
  fs::create_directories(deep / "e/f");
  CHECK(folder.exceeds(100, 2 << 20) == "folders nested deeper than 64");
  fs::remove_all(folder.path() / "d");
  for (const int mode : {0, 0300, 0400}) {
    const auto unlisted = [&]() -> std::string {
      SandboxFolder mine;
      mkdir((mine.path() / "in").c_str(), 0700);
      std::ofstream(mine.path() / "in/file");
      chmod((mine.path() / "in").c_str(), static_cast<mode_t>(mode));
      return mine.exceeds(100, 1 << 20);
    };
    INFO("mode " << mode);
    CHECK((geteuid() == 0 ? as_nobody(unlisted) : unlisted()) == "a folder that cannot be listed");
  }
  CHECK(folder.give_to(geteuid(), getegid()) == 0);
}

TEST_CASE("sandbox: a host that is interrupted by signals counts all the same") {
  const std::string code =
      "import os\n"
      "try:\n"
      "  for i in range(100000): os.close(os.open(f'{i}', os.O_CREAT | os.O_WRONLY))\n"
      "except OSError as error: print(error.strerror)\n"
      "else: print('ESCAPED')";
  for (const SandboxLayers layers : kLayers) {
    INFO(name_of(layers));
    CHECK(in_child([&]() -> std::string {
            const Sandbox sandbox(layers);
            sandbox.isolation();
            struct sigaction action {};
            action.sa_handler = ignore_signal;
            sigaction(SIGALRM, &action, nullptr);
            const itimerval often{{0, 3000}, {0, 3000}};
            setitimer(ITIMER_REAL, &often, nullptr);
            const SandboxResult result = sandbox.run(request_of(code));
            if (result.output.find("No space left") != std::string::npos) return {};
            return result.end == SandboxResult::End::exceeded ? "" : "it was not ended: " + result.output;
          }) == "");
  }
}

TEST_CASE("sandbox: a host that may write no files is not ended") {
  for (const SandboxLayers layers : kLayers) {
    INFO(name_of(layers));
    CHECK(in_child([&] {
            const rlimit none{0, RLIM_INFINITY};
            setrlimit(RLIMIT_FSIZE, &none);
            return refusal(Sandbox(layers));
          }) == std::string("sandbox: cannot write the input: ") + std::strerror(EFBIG));
  }
}

TEST_CASE("sandbox: a layer that cannot be added is not said to hold") {
  const std::string problem = in_child([]() -> std::string {
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    // The kernel keeps sixteen sets of rules. These forbid nothing that is done here.
    for (int set = 0; set < 20; ++set) {
      landlock_ruleset_attr attributes{};
      attributes.handled_access_fs = LANDLOCK_ACCESS_FS_MAKE_BLOCK;
      const UniqueFd rules(static_cast<int>(syscall(SYS_landlock_create_ruleset, &attributes, sizeof(attributes), 0)));
      if (!rules) return "skipped";
      if (syscall(SYS_landlock_restrict_self, rules.get(), 0) != 0) break;
    }
    const Sandbox sandbox({true, false});
    const std::string refused = refusal(sandbox);
    if (refused.find(std::strerror(E2BIG)) == std::string::npos) return "it ran, or failed for: " + refused;
    try {
      return "isolation says: " + fact_of(sandbox.isolation(), "Landlock").text;
    } catch (const std::runtime_error&) {
      return {};
    }
  });
  if (problem == "skipped") {
    WARN("skipped: no Landlock here");
    return;
  }
  CHECK(problem == "");
}

TEST_CASE("sandbox: descriptors of any number are closed where no one call closes them") {
  for (const SandboxLayers layers : kLayers) {
    const std::string output = in_child([&]() -> std::string {
      rlimit limit{};
      getrlimit(RLIMIT_NOFILE, &limit);
      const int highest = static_cast<int>(std::min<rlim_t>(limit.rlim_max - 1, 70000));
      limit.rlim_cur = limit.rlim_max;
      const UniqueFd null(open("/dev/null", O_RDONLY | O_CLOEXEC));
      if (setrlimit(RLIMIT_NOFILE, &limit) != 0 || dup2(null.get(), highest) < 0 || dup2(null.get(), 50) < 0) {
        return "no descriptors";
      }
      const sock_filter filter[] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
                                    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_close_range, 0, 1),
                                    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
                                    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
      const sock_fprog program{std::size(filter), const_cast<sock_filter*>(filter)};
      prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
      if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0) != 0) return "no filter";
      return Sandbox(layers)
          .run(request_of(
              fmt::format("import os\nfor fd in 50, {}:\n  try: print(os.fstat(fd))\n  except OSError: pass", highest)))
          .output;
    });
    INFO(name_of(layers));
    CHECK(output == "");
  }
}

TEST_CASE("python: the tool says what confines its own sandbox") {
  const auto facts = make_python_tool({true, false})->isolation();
  CHECK_FALSE(fact_of(facts, "namespaces").in_force);
  CHECK(fact_of(facts, "namespaces").text.find("switched off") != std::string::npos);
  CHECK(fact_of(make_python_tool({false, true})->isolation(), "Landlock").text.find("switched off") == 0);
  const auto tool = make_python_tool()->isolation();
  const auto sandbox = Sandbox().isolation();
  REQUIRE(tool.size() == sandbox.size());
  for (std::size_t i = 0; i < tool.size(); ++i) {
    CHECK(tool[i].layer == sandbox[i].layer);
    CHECK(tool[i].text == sandbox[i].text);
  }
}

}  // namespace sandbox_host_test
