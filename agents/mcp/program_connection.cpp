// SPDX-License-Identifier: Apache-2.0
// ServerProcess: the program of an MCP server, in a process group of its own.

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "agents/mcp/connection.h"
#include "engine/base/clock.h"
#include "engine/base/errors.h"
#include "engine/base/system/file.h"
#include "engine/base/system/process.h"
#include "engine/base/utf8.h"

namespace baton {

class ServerProcess {
 public:
  /// Starts the program with a small environment (PATH, HOME and the like, and what the file gives), no file descriptor
  /// of the host's, and signals as a program expects them. Throws McpError.
  explicit ServerProcess(const McpServerSpec& spec);
  /// Closes the program's input, and ends what has not ended within a second: first by SIGTERM, then by SIGKILL, with
  /// all processes of its group. Those of a process that the host has reaped are left alone.
  ~ServerProcess();
  ServerProcess(const ServerProcess&) = delete;
  ServerProcess& operator=(const ServerProcess&) = delete;

  int input() const { return input_.get(); }    // its standard input; -1: it has been closed
  int output() const { return output_.get(); }  // its standard output; reading does not wait
  int errors() const { return errors_.get(); }  // its standard error; reading does not wait
  int handle() const { return handle_.get(); }  // readable once the program has ended; -1: the system has none

  /// Writes as many of the bytes as the program's pipe takes now, and returns their number. The input is closed where
  /// the program has closed it. Throws McpError.
  std::size_t write(std::string_view bytes);

  /// "ended with exit code 1", "was killed by signal 9", once it has ended within `patience`; else nothing. The status
  /// of a process that the host has reaped is not known: "ended".
  std::string how_it_ended(std::chrono::milliseconds patience);

 private:
  void signal(int number) const;

  UniqueFd input_, output_, errors_;
  UniqueFd handle_;  // a pidfd
  pid_t id_ = 0;
  bool reaped_ = false;
};

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

// The connection to a program (MCP's "stdio"): a message is a line of its standard input or output.

namespace {

constexpr std::size_t kMaxErrors = 4096;                // kept bytes of its standard error: the last
constexpr std::size_t kMaxOutbox = 2 * kMaxMcpMessage;  // bytes that it has not read yet
constexpr std::chrono::milliseconds kPatience(500);     // for the status of a program that has closed its output

UniqueFd make_event() {
  UniqueFd event(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!event) throw McpError(fmt::format("cannot make an event: {}", std::strerror(errno)));
  return event;
}

/// The end of what a program wrote to its standard error.
class ErrorOutput {
 public:
  /// The descriptor to watch for input; -1: nothing comes any more.
  int watched(int fd) const { return open_ ? fd : -1; }
  void read(int fd) {
    std::array<char, 65536> buffer;
    const ssize_t bytes = ::read(fd, buffer.data(), buffer.size());
    if (bytes > 0) text_.append(buffer.data(), static_cast<std::size_t>(bytes));
    if (text_.size() > kMaxErrors) text_.erase(0, text_.size() - kMaxErrors);
  }
  void set_open(bool open) { open_ = open; }
  /// "it ended with code 1; it wrote: ...".
  std::string last_words(const std::string& how) const {
    constexpr std::size_t kShown = 400;
    const std::string words = said(std::string_view(text_).substr(text_.size() - std::min(text_.size(), kShown)));
    return words.empty() ? fmt::format("it {}", how) : fmt::format("it {}; it wrote: {}", how, words);
  }

 private:
  std::string text_;
  bool open_ = true;
};

/// The lines of a program's output, which comes in pieces.
class OutputLines {
 public:
  /// Calls `take` with each line that ends in these bytes.
  template <typename Take>
  void add(std::string_view bytes, const Take& take) {
    text_.append(bytes);
    std::size_t begin = 0;
    for (std::size_t at = text_.find('\n', searched_); at != std::string::npos; at = text_.find('\n', begin)) {
      take(std::string_view(text_).substr(begin, at - begin));
      begin = at + 1;
    }
    text_.erase(0, begin);
    searched_ = text_.size();
  }
  std::size_t unfinished_bytes() const { return text_.size(); }

 private:
  std::string text_;          // an unfinished line
  std::size_t searched_ = 0;  // bytes of it without an end
};

/// One thread reads and writes, so that neither waits for the other; requests leave their messages and wait.
class ProgramConnection : public McpConnection {
 public:
  explicit ProgramConnection(const McpServerSpec& spec)
      : process_(spec), wake_(make_event()), worker_([this] { work(); }) {}
  ~ProgramConnection() override {
    leaving_ = true;
    eventfd_write(wake_.get(), 1);
    worker_.join();
  }

  std::string request(const std::string& method, const std::string& params, const McpWait& wait) override;
  void notify(const std::string& method, const McpWait&) override {
    const std::lock_guard lock(mutex_);
    send(rpc_notification(method, "{}"));
  }
  void agree(const std::string&) override {}
  std::string ended() const override {
    const std::lock_guard lock(mutex_);
    return ended_;
  }

 private:
  struct Answer {
    std::string message;
    std::string error;
  };

  void send(const std::string& message);
  void end(const std::string& why) noexcept;

  // The thread's.
  void work() noexcept;
  bool step();
  void write();
  bool read_output();
  void take(std::string_view message);

  ServerProcess process_;
  mutable std::mutex mutex_;
  std::condition_variable_any answered_;
  std::map<std::int64_t, std::optional<Answer>> waiting_;  // by the number of the request
  std::int64_t last_id_ = 0;
  std::string outbox_;  // messages that are not written yet
  std::string ended_;
  OutputLines lines_;  // this and those below are the thread's
  ErrorOutput errors_;
  std::size_t unasked_ = 0;  // bytes since the last answer
  std::atomic<bool> leaving_ = false;
  UniqueFd wake_;
  std::thread worker_;
};

std::string ProgramConnection::request(const std::string& method, const std::string& params, const McpWait& wait) {
  std::unique_lock lock(mutex_);
  const std::int64_t id = ++last_id_;
  send(rpc_request(id, method, params));
  waiting_.emplace(id, std::nullopt);
  answered_.wait_until(lock, wait.stop, wait.due, [&] { return waiting_.at(id).has_value() || !ended_.empty(); });
  const std::optional<Answer> answer = std::move(waiting_.extract(id).mapped());
  if (answer && answer->error.empty()) return answer->message;
  if (answer) throw McpError(fmt::format("it answered '{}' with: {}", method, answer->error));
  if (!ended_.empty()) throw McpError(ended_);
  const bool unread = !outbox_.empty();
  if (method != kInitialize)
    send(rpc_notification("notifications/cancelled", fmt::format(R"({{"requestId":{}}})", id)));
  if (wait.stop.stop_requested()) throw Interrupted();
  throw McpError(unread ? "it does not read its input" : fmt::format("it gave no answer to '{}' in time", method));
}

/// The mutex is held.
void ProgramConnection::send(const std::string& message) {
  if (!ended_.empty()) throw McpError(ended_);
  if (outbox_.size() > kMaxOutbox) throw McpError("it does not read its input");
  outbox_ += message;
  outbox_ += '\n';
  eventfd_write(wake_.get(), 1);
}

/// No more answers: whoever waits is told why.
void ProgramConnection::end(const std::string& why) noexcept {
  const std::lock_guard lock(mutex_);
  if (ended_.empty() && !try_to([&] { ended_ = why; })) ended_ = "no memory";
  answered_.notify_all();
}

void ProgramConnection::work() noexcept {
  try {
    while (step()) {
    }
    if (leaving_) return;
    const std::string how = process_.how_it_ended(kPatience);
    errors_.read(process_.errors());
    end(errors_.last_words(how.empty() ? "closed its output" : how));
  } catch (const std::exception& error) {
    end(message_of(error));
  }
}

/// Waits for something to do, and does it. Returns false when there is nothing to come.
bool ProgramConnection::step() {
  const bool writes = [this] {
    const std::lock_guard lock(mutex_);
    return !outbox_.empty();
  }();
  std::array<pollfd, 5> watched = {pollfd{wake_.get(), POLLIN, 0}, pollfd{process_.output(), POLLIN, 0},
                                   pollfd{errors_.watched(process_.errors()), POLLIN, 0},
                                   pollfd{writes ? process_.input() : -1, POLLOUT, 0},
                                   pollfd{process_.handle(), POLLIN, 0}};
  if (poll(watched.data(), watched.size(), -1) < 0 && errno != EINTR) throw McpError("cannot read from it");
  const auto [wake, output, errors, input, ended] = watched;
  if (leaving_) return false;
  if (eventfd_t count = 0; wake.revents != 0) eventfd_read(wake_.get(), &count);
  if (errors.revents != 0) {
    errors_.read(process_.errors());
    errors_.set_open((errors.revents & POLLIN) != 0);
  }
  if (input.revents != 0) write();
  if (output.revents != 0 && !read_output()) return false;
  return ended.revents == 0 || (output.revents & POLLIN) != 0;  // its children may hold its output open
}

void ProgramConnection::write() {
  const std::lock_guard lock(mutex_);
  outbox_.erase(0, process_.write(outbox_));
  if (process_.input() < 0) outbox_.clear();  // its end will say why
}

/// Takes the lines that are there. Returns false at the end of the output.
bool ProgramConnection::read_output() {
  std::array<char, 65536> buffer;
  const ssize_t bytes = ::read(process_.output(), buffer.data(), buffer.size());
  if (bytes < 0) return errno == EAGAIN || errno == EINTR;
  if (bytes == 0) return false;
  unasked_ += static_cast<std::size_t>(bytes);
  lines_.add({buffer.data(), static_cast<std::size_t>(bytes)}, [this](std::string_view line) { take(line); });
  if (lines_.unfinished_bytes() > kMaxMcpMessage)
    throw McpError(fmt::format("it sent a message of more than {} MiB", kMaxMcpMessage >> 20));
  if (unasked_ > kMaxMcpUnasked + lines_.unfinished_bytes())
    throw McpError(fmt::format("it sent {} MiB that nobody asked for", kMaxMcpUnasked >> 20));
  return true;
}

/// A line that is no message, such as a program's greeting, is left out.
void ProgramConnection::take(std::string_view text) {
  RpcMessage message;
  try {
    message = read_rpc(text);
  } catch (const std::exception&) {
    return;
  }
  const std::lock_guard lock(mutex_);
  if (message.kind == RpcMessage::Kind::request) return send(rpc_answer(message));
  const auto found = message.id ? waiting_.find(*message.id) : waiting_.end();
  if (found == waiting_.end() || found->second) return;  // a notification, or too late
  found->second = message.kind == RpcMessage::Kind::error ? Answer{{}, message.error} : Answer{std::string(text), {}};
  unasked_ = 0;
  answered_.notify_all();
}

}  // namespace

std::unique_ptr<McpConnection> connect_to_program(const McpServerSpec& spec) {
  return std::make_unique<ProgramConnection>(spec);
}

}  // namespace baton
