// SPDX-License-Identifier: Apache-2.0
// baton doctor: what this machine can do, line by line.
#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <thread>

#include <baton/baton.h>
#include <baton/rates.h>
#include <baton/system.h>
#include <baton/version.h>

#include "engine/base/system/process.h"
#include "sdk/cli/verbs.h"
#include "sdk/console/terminal.h"
#include "sdk/console/text.h"

namespace baton::cli {
namespace {

enum class Verdict { ok, warn, fail };

struct Finding {
  std::string what;
  Verdict verdict = Verdict::ok;
  std::string text;
};

const char* name_of(Verdict verdict) {
  return verdict == Verdict::ok ? "ok" : verdict == Verdict::warn ? "warn" : "fail";
}

void check_devices(std::vector<Finding>& findings) {
  for (const auto& device : devices()) {
    if (device.problem.empty()) {
      findings.push_back({"device " + device.name, Verdict::ok, device.description});
    } else {
      const bool cpu = device.name == "cpu";
      findings.push_back({"device " + device.name, cpu ? Verdict::fail : Verdict::warn,
                          device.problem + (cpu ? "" : " (the CPU is used)")});
    }
  }
}

void check_processor(std::vector<Finding>& findings) {
  const std::string vectors = vector_instructions();
  findings.push_back({"vectors", vectors.empty() ? Verdict::warn : Verdict::ok,
                      vectors.empty() ? "none found: the engine will be slow" : vectors});
  const int cores = usable_cores();
  const auto all = static_cast<int>(std::thread::hardware_concurrency());
  findings.push_back(
      {"threads", Verdict::ok,
       cores < all ? fmt::format("this process may use {} of {} cores", cores, all) : fmt::format("{} cores", cores)});
}

void check_memory(std::vector<Finding>& findings) {
  const MachineMemory memory = machine_memory();
  const auto free = static_cast<double>(memory.available_bytes);
  findings.push_back({"memory", free < 1e9 ? Verdict::warn : Verdict::ok,
                      fmt::format("{} available of {}", size(free), size(static_cast<double>(memory.total_bytes)))});
}

void check_models(std::vector<Finding>& findings) {
  const auto found = models();
  std::string names;
  for (const auto& model : found) {
    if (model.problem.empty()) {
      names += (names.empty() ? "" : ", ") + model.name;
    } else {
      findings.push_back({"model " + model.name, Verdict::warn, model.problem});
    }
  }
  findings.push_back({"models", names.empty() ? Verdict::warn : Verdict::ok,
                      names.empty() ? "none found by name; see 'baton models'" : names});
}

void check_python(std::vector<Finding>& findings) {
  ToolCall call;
  call.text = "```python\nprint(6 * 7)\n```";
  call.timeout = std::chrono::seconds(10);
  try {
    const ToolResult answer = Tools().call("python", call);
    const bool right = answer.ok && printable(answer.text, Lines::fold).rfind("42", 0) == 0;
    findings.push_back(
        {"tool python", right ? Verdict::ok : Verdict::warn,
         right ? "runs, isolated in a process of its own" : "does not work: " + printable(answer.text, Lines::fold)});
    for (const auto& fact : isolation())
      findings.push_back({"sandbox " + fact.layer, fact.in_force ? Verdict::ok : Verdict::warn, fact.text});
  } catch (const std::exception& error) {
    findings.push_back({"tool python", Verdict::warn, error.what()});
  }
}

void check_terminal(std::vector<Finding>& findings) {
  if (!stderr_is_terminal()) {
    findings.push_back({"terminal", Verdict::ok, "none on stderr: plain lines"});
    return;
  }
  const TerminalSize size = terminal_size();
  findings.push_back(
      {"terminal", size.columns < 60 ? Verdict::warn : Verdict::ok,
       fmt::format("{} x {}, {}, {}, {}", size.columns, size.rows, can_redraw() ? "live view" : "plain lines",
                   use_colour() ? "colours" : "no colours", terminal_is_utf8() ? "UTF-8" : "not UTF-8")});
}

/// How many rows lockstep may let ride along in a decode step of the model.
void check_rows(const std::string& model, std::vector<Finding>& findings) {
  RateOptions options;
  options.model = model;
  options.stop = interrupted();
  const RowCosts costs = measure_rows(options);
  if (costs.steps.empty()) return;
  std::string table;
  for (const auto& step : costs.steps)
    table += fmt::format("{}{}: {:.2f} ms", table.empty() ? "" : ", ", step.rows, step.ms);
  findings.push_back(
      {"rows ahead", costs.knee > 0 ? Verdict::ok : Verdict::warn,
       fmt::format("{} prompt rows in a decode step lengthen it by at most {:.0f} %, {} tokens deep ({})", costs.knee,
                   100 * costs.slowdown, costs.depth, table)});
}

/// The self-test of a device.
void check_operations(const std::string& device, std::vector<Finding>& findings) {
  int parts = 0;
  double milliseconds = 0;
  const std::size_t before = findings.size();
  check_device(device, [&](const DeviceCheck& check) {
    ++parts;
    milliseconds += check.milliseconds;
    if (!check.problem.empty())
      findings.push_back({"device " + device, Verdict::fail, check.name + ": " + check.problem});
  });
  const std::size_t failed = findings.size() - before;
  findings.push_back(
      {"self-test " + device, failed == 0 ? Verdict::ok : Verdict::fail,
       fmt::format("{} of {} parts give what the CPU gives, in {:.1f} s", parts - failed, parts, milliseconds / 1000)});
}

int doctor(const std::string& model, const std::string& device, bool json) {
  std::vector<Finding> findings = {{"baton", Verdict::ok, version()}};
  check_devices(findings);
  check_processor(findings);
  check_memory(findings);
  check_models(findings);
  check_python(findings);
  check_terminal(findings);
  if (!device.empty()) check_operations(device, findings);
  if (!model.empty()) check_rows(model, findings);
  bool usable = true;
  auto list = nlohmann::ordered_json::array();
  for (const auto& finding : findings) {
    usable = usable && finding.verdict != Verdict::fail;
    list.push_back({{"check", finding.what}, {"verdict", name_of(finding.verdict)}, {"text", finding.text}});
    if (!json)
      result(fmt::format("{} {} {}\n", padded(name_of(finding.verdict), 5), padded(finding.what, 21),
                         printable(finding.text, Lines::fold)));
  }
  if (json) result(list.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
  return usable ? kOk : kResources;
}

}  // namespace

void add_doctor(CommandLine& line) {
  auto* verb = line.add_verb("doctor", "Check what this machine can do");
  auto json = std::make_shared<bool>(false);
  auto model = std::make_shared<std::string>(), device = std::make_shared<std::string>();
  verb->add_option("--device", *device, "Also test the device's operations, copies and answers against the CPU's")
      ->type_name("cpu|cuda|cuda:N");
  verb->add_option("--model", *model, "Also measure how many prompt rows fit into the model's decode steps (lockstep)")
      ->type_name("PATH");
  verb->add_flag("--json", *json, "Print JSON");
  verb->footer("A check with verdict warn limits something; with verdict fail nothing can run (exit code 4).");
  verb->run([json, model, device] { return doctor(*model, *device, *json); });
}

}  // namespace baton::cli
