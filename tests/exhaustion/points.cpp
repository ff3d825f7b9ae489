// SPDX-License-Identifier: Apache-2.0
#include "tests/exhaustion/points.h"

#include <baton/baton.h>
#include <execinfo.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <new>
#include <thread>

namespace baton::test {
namespace {

using namespace std::chrono_literals;

constexpr auto kHang = 20s;  // of one point, which takes milliseconds
constexpr std::size_t kMaxProblems = 20;

/// What a child tells its parent, in shared memory: it may be killed at any time.
struct Report {
  std::atomic<std::int64_t> point;  // that is being tried
  std::atomic<std::int64_t> points;
  std::atomic<std::int64_t> failed;
  std::atomic<std::int64_t> wrong;
  std::atomic<bool> over;
  char problem[512];  // the newest
};

void note(Report& report, const std::string& problem) {
  ++report.wrong;
  const std::size_t size = std::min(problem.size(), sizeof(report.problem) - 1);
  std::memcpy(report.problem, problem.data(), size);
  report.problem[size] = '\0';
}

void print_stack(int signal) {
  void* frames[64];
  backtrace_symbols_fd(frames, backtrace(frames, 64), STDERR_FILENO);
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

/// Returns what is wrong with the end of a run under faults, or an empty text.
std::string try_point(Scenario& scenario, const Points& points, std::int64_t point, const std::string& expected,
                      Report& report, bool& reached) {
  std::string answer, error;
  bool threw = true;
  arm(points.fault, point, points.faults);
  try {
    answer = scenario.run();
    threw = false;
    reached = disarm() > 0;
  } catch (const baton::Error& wrong) {
    reached = disarm() > 0;
    error = wrong.what();
  } catch (const std::bad_alloc&) {  // where the host's own call had no memory
    reached = disarm() > 0;
    error = "out of memory";
  } catch (const std::exception& wrong) {
    reached = disarm() > 0;
    return fmt::format("an exception that the library does not document: {}", wrong.what());
  }
  if (!threw) return scenario.exact() && answer != expected ? fmt::format("answers '{}'", answer) : "";
  ++report.failed;
  if (error.find("memory") == error.npos && error.find("thread") == error.npos)
    return fmt::format("an error that does not name its cause: '{}'", error);
  return "";
}

[[noreturn]] void run_child(const std::function<std::unique_ptr<Scenario>()>& make, const Points& points,
                            std::int64_t first, Report& report) {
  if (std::getenv("BATON_FAULT_POINT") != nullptr) {
    std::signal(SIGABRT, print_stack);
    std::signal(SIGSEGV, print_stack);
  }
  const std::unique_ptr<Scenario> scenario = make();
  const std::string expected = scenario->run();
  for (std::int64_t point = first;; point += points.step) {
    report.point = point;
    bool reached = true;
    std::string problem = try_point(*scenario, points, point, expected, report, reached);
    if (!problem.empty()) note(report, fmt::format("point {}: {}", point, problem));
    if (!reached) break;
    ++report.points;
    try {
      if (const std::string answer = scenario->run(); answer != expected)
        note(report, fmt::format("point {}: the next run answers '{}', expected '{}'", point, answer, expected));
    } catch (const std::exception& error) {
      note(report, fmt::format("point {}: the next run fails: {}", point, error.what()));
    }
    if (std::getenv("BATON_FAULT_POINT") != nullptr) break;
  }
  report.over = true;
  std::_Exit(0);
}

/// Waits for the child. Returns how it ended otherwise than by itself, or an empty text.
std::string wait_for(pid_t child, const Report& report) {
  std::int64_t seen = -1;
  auto since = std::chrono::steady_clock::now();
  for (int status = 0;;) {
    if (::waitpid(child, &status, WNOHANG) == child) {
      if (WIFSIGNALED(status)) return fmt::format("signal {}", WTERMSIG(status));
      return report.over ? "" : fmt::format("exit code {}", WEXITSTATUS(status));
    }
    const auto now = std::chrono::steady_clock::now();
    if (report.point != seen) seen = report.point, since = now;
    if (now - since > kHang) {
      ::kill(child, std::getenv("BATON_FAULT_POINT") != nullptr ? SIGABRT : SIGKILL);
      ::waitpid(child, &status, 0);
      return "hangs";
    }
    std::this_thread::sleep_for(2ms);
  }
}

}  // namespace

PointsResult try_points(const std::function<std::unique_ptr<Scenario>()>& make, const Points& points) {
  void* shared = ::mmap(nullptr, sizeof(Report), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) throw std::bad_alloc();
  PointsResult result;
  const char* only = std::getenv("BATON_FAULT_POINT");  // one point, with a stack where it dies
  std::int64_t first = only != nullptr ? std::atoll(only) : 1;
  for (bool over = false; !over && result.problems.size() < kMaxProblems;) {
    auto* report = new (shared) Report{};
    const pid_t child = ::fork();
    if (child < 0) throw std::bad_alloc();
    if (child == 0) run_child(make, points, first, *report);
    const std::string end = wait_for(child, *report);
    result.points += report->points;
    result.failed += report->failed;
    if (report->wrong > 0)
      result.problems.push_back(fmt::format("{} wrong, the last: {}", report->wrong.load(), report->problem));
    if (!end.empty()) result.problems.push_back(fmt::format("point {}: {}", report->point.load(), end));
    over = end.empty() || report->point == 0 || only != nullptr;
    first = report->point + points.step;
  }
  ::munmap(shared, sizeof(Report));
  return result;
}

}  // namespace baton::test
