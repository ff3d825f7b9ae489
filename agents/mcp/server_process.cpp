// SPDX-License-Identifier: Apache-2.0
#include "agents/mcp/server_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>
#include <vector>

#include "agents/mcp/message.h"
#include "engine/base/clock.h"
#include "engine/base/said.h"
#include "engine/base/system/process.h"

namespace baton {
namespace {

constexpr std::array kInherited = {"HOME", "LANG", "LC_ALL", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "USER"};
constexpr std::chrono::milliseconds kGrace(1000);  // for an end by itself, and again after SIGTERM
constexpr int kSliceMs = 20;                       // between two looks at a process without a pidfd

/// A pipe whose ends the children of other threads do not get.
struct Pipe {
  Pipe() {
    std::array<int, 2> ends{};
    if (pipe2(ends.data(), O_CLOEXEC) != 0) throw McpError(fmt::format("cannot make a pipe: {}", std::strerror(errno)));
    read = UniqueFd(ends[0]);
    write = UniqueFd(ends[1]);
  }
  UniqueFd read, write;
};

void do_not_wait(int fd) { fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK); }

/// "NAME=value" of the variables that every program gets, and of the server's own, which take precedence.
std::vector<std::string> environment_of(const McpServerSpec& spec) {
  std::map<std::string, std::string> variables;
  for (const char* name : kInherited) {
    if (const char* value = std::getenv(name)) variables[name] = value;
  }
  for (const auto& [name, value] : spec.environment) variables[name] = value;
  std::vector<std::string> out;
  for (const auto& [name, value] : variables) out.push_back(name + "=" + value);
  return out;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> out;
  for (std::string& text : texts) out.push_back(text.data());
  out.push_back(nullptr);
  return out;
}

/// The settings of posix_spawn, freed with the object.
struct Spawning {
  Spawning() {
    posix_spawn_file_actions_init(&files);
    posix_spawnattr_init(&attributes);
  }
  Spawning(const Spawning&) = delete;
  Spawning& operator=(const Spawning&) = delete;
  ~Spawning() {
    posix_spawn_file_actions_destroy(&files);
    posix_spawnattr_destroy(&attributes);
  }
  posix_spawn_file_actions_t files{};
  posix_spawnattr_t attributes{};
};

}  // namespace

ServerProcess::ServerProcess(const McpServerSpec& spec) {
  Pipe in, out, errors;
  Spawning spawning;
  posix_spawn_file_actions_adddup2(&spawning.files, in.read.get(), 0);
  posix_spawn_file_actions_adddup2(&spawning.files, out.write.get(), 1);
  posix_spawn_file_actions_adddup2(&spawning.files, errors.write.get(), 2);
  posix_spawn_file_actions_addclosefrom_np(&spawning.files, 3);
  if (!spec.folder.empty()) posix_spawn_file_actions_addchdir_np(&spawning.files, spec.folder.c_str());
  sigset_t signals;
  sigfillset(&signals);
  posix_spawnattr_setsigdefault(&spawning.attributes, &signals);
  sigemptyset(&signals);
  posix_spawnattr_setsigmask(&spawning.attributes, &signals);
  posix_spawnattr_setpgroup(&spawning.attributes, 0);
  posix_spawnattr_setflags(&spawning.attributes,
                           POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETPGROUP);
  std::vector<std::string> arguments = spec.command, environment = environment_of(spec);
  const int error = posix_spawnp(&id_, arguments.front().c_str(), &spawning.files, &spawning.attributes,
                                 pointers(arguments).data(), pointers(environment).data());
  if (error != 0)
    throw McpError(fmt::format("cannot start '{}': {}", said(arguments.front(), 200), std::strerror(error)));
  handle_ = UniqueFd(static_cast<int>(syscall(SYS_pidfd_open, id_, 0)));
  input_ = std::move(in.write);
  output_ = std::move(out.read);
  errors_ = std::move(errors.read);
  for (const UniqueFd* fd : {&input_, &output_, &errors_}) do_not_wait(fd->get());
}

void ServerProcess::signal(int number) const { kill(-id_, number); }

ServerProcess::~ServerProcess() {
  input_.reset();
  if (how_it_ended(kGrace).empty()) {
    signal(SIGTERM);
    how_it_ended(kGrace);
  }
  if (reaped_) return;  // by the host: the group's number may be another's by now
  signal(SIGKILL);
  while (waitpid(id_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

std::size_t ServerProcess::write(std::string_view bytes) {
  ssize_t written = 0;
  int error = 0;
  without_pipe_signal([&] {
    written = ::write(input_.get(), bytes.data(), bytes.size());
    error = errno;
  });
  if (written >= 0) return static_cast<std::size_t>(written);
  if (error == EAGAIN || error == EINTR) return 0;
  if (error != EPIPE) throw McpError(fmt::format("cannot write to it: {}", std::strerror(error)));
  input_.reset();
  return 0;
}

std::string ServerProcess::how_it_ended(std::chrono::milliseconds patience) {
  const Clock::time_point due = Clock::now() + patience;
  while (true) {
    siginfo_t status{};
    const int result = waitid(P_PID, static_cast<id_t>(id_), &status, WEXITED | WNOHANG | WNOWAIT);
    if (result != 0 && errno == ECHILD) {
      reaped_ = true;
      return "ended";
    }
    if (result == 0 && status.si_pid == id_) {
      if (status.si_code == CLD_EXITED) return fmt::format("ended with exit code {}", status.si_status);
      return fmt::format("was killed by signal {}", status.si_status);
    }
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(due - Clock::now()).count();
    if (left <= 0) return {};
    pollfd ended{handle_.get(), POLLIN, 0};
    poll(&ended, 1, static_cast<int>(std::min<std::int64_t>(left, handle_ ? left : kSliceMs)));
  }
}

}  // namespace baton
