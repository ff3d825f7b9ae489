// SPDX-License-Identifier: Apache-2.0
// baton serve: answers HTTP requests with workflows, in OpenAI's interface.
#include "sdk/serve/server.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <baton/baton.h>
#include <baton/turns.h>

#include "engine/base/system/file.h"
#include "sdk/cli/verbs.h"
#include "sdk/console/options.h"
#include "sdk/console/terminal.h"
#include "sdk/console/text.h"
#include "sdk/serve/admission.h"
#include "sdk/trace/trace_target.h"

namespace baton::cli {
namespace {

constexpr const char* kKeyVariable = "BATON_SERVE_KEY";

struct ServeArguments {
  std::vector<std::string> files;     // "FILE" or "NAME=FILE"
  std::vector<std::string> messages;  // "INPUT" or "NAME=INPUT"
  WorkflowArguments workflow;         // settings of all files
  InputArguments inputs;
  EngineArguments engine;
  serve::ServeOptions server;
  std::string key_file, timeout = "10m", drain = "30s", approval = "10m", trace;
  bool quiet = false;
};

/// "NAME=VALUE" in two; without a name the first is empty.
std::pair<std::string, std::string> named(const std::string& text) {
  const std::size_t at = text.find('=');
  if (at == std::string::npos || text.find('/') < at) return {"", text};
  return {text.substr(0, at), text.substr(at + 1)};
}

std::vector<std::string> keys_of(const ServeArguments& arguments) {
  std::vector<std::string> keys;
  if (!arguments.key_file.empty()) {
    keys = serve::keys_of_text(read_file(arguments.key_file));
    if (keys.empty())
      throw Failure(kUsage, fmt::format("--key-file {}: expected a key a line, found none", arguments.key_file));
    if (readable_by_all(arguments.key_file))
      note(fmt::format("warning: every user of this machine can read the keys in {}\n", arguments.key_file));
  }
  if (const char* key = std::getenv(kKeyVariable); key != nullptr && *key != '\0') keys.emplace_back(key);
  return keys;
}

bool names_servers(const Workflow& workflow) {
  const std::vector<TurnInfo> turns = workflow.turns();
  return std::any_of(turns.begin(), turns.end(), [](const TurnInfo& turn) {
    const auto is_of_server = [](const std::string& call) { return call.starts_with("mcp: "); };
    return std::count(turn.tools.begin(), turn.tools.end(), "mcp") > 0 ||
           std::any_of(turn.calls.begin(), turn.calls.end(), is_of_server);
  });
}

/// The inputs of `values` that the workflow has; each must be of one workflow at least.
std::map<std::string, std::string> inputs_of(const Workflow& workflow, const std::map<std::string, std::string>& values,
                                             std::map<std::string, bool>& used) {
  std::map<std::string, std::string> inputs;
  for (const InputInfo& input : workflow.inputs()) {
    const auto value = values.find(input.name);
    if (value == values.end()) continue;
    inputs.insert(*value);
    used[input.name] = true;
  }
  return inputs;
}

/// Whether a file to serve is a model, not a workflow.
bool is_model(const std::string& path) {
  return path.starts_with("hf:") || std::filesystem::path(path).extension() == ".gguf" ||
         std::filesystem::is_regular_file(std::filesystem::path(path) / "config.json");
}

/// "qwen" of models/qwen.gguf, models/qwen/ and hf:org/qwen.
std::string model_name(const std::string& path) {
  const std::filesystem::path file(path.ends_with('/') ? path.substr(0, path.size() - 1) : path);
  return file.extension() == ".gguf" ? file.stem().string() : file.filename().string();
}

serve::ServedWorkflows load(const ServeArguments& arguments) {
  std::map<std::string, std::string> messages;  // by workflow; "": of all
  for (const std::string& message : arguments.messages) messages.insert(named(message));
  const std::map<std::string, std::string> values = arguments.inputs.values();
  std::map<std::string, bool> used;
  serve::ServedWorkflows workflows;
  for (const std::string& file : arguments.files) {
    auto [name, path] = named(file);
    if (is_model(path)) {
      workflows.add(serve::serve_model(name.empty() ? model_name(path) : name, path));
      continue;
    }
    if (name.empty()) name = std::filesystem::path(path).stem().string();
    WorkflowArguments one = arguments.workflow;
    one.file = path;
    const Workflow workflow = one.load();
    if (!arguments.engine.allow_servers && names_servers(workflow))
      throw Failure(kUsage, fmt::format("{} names servers of tools, which are programs and addresses outside of any "
                                        "sandbox; give --allow-servers to use them",
                                        path));
    const std::string& message = messages.count(name) != 0 ? messages[name] : messages[""];
    workflows.add(serve::serve_workflow(name, workflow, message, inputs_of(workflow, values, used)));
  }
  for (const auto& [name, message] : messages) {
    if (!name.empty() && workflows.find(name) == nullptr)
      throw Failure(kUsage, fmt::format("--message {}={}: unknown workflow '{}'; expected one of: {}", name, message,
                                        name, workflows.names()));
  }
  for (const auto& [name, value] : values) {
    if (!used[name]) throw Failure(kUsage, fmt::format("--input {}: no workflow has this input", name));
  }
  return workflows;
}

/// The workflows and plain models, and the model that replaces those of the workflows: without files, `--model` is what
/// is served.
std::pair<serve::ServedWorkflows, std::string> served(const ServeArguments& given) {
  ServeArguments arguments = given;
  std::string replacement = arguments.workflow.default_model();
  if (arguments.files.empty()) {
    if (arguments.workflow.models.empty())
      throw Failure(kUsage, "expected workflow files or models to serve: baton serve team.yaml, or --model FILE");
    std::swap(arguments.files, arguments.workflow.models);
    replacement.clear();
  }
  const auto plain = [](const std::string& file) { return is_model(named(file).second); };
  const bool some = std::ranges::any_of(arguments.files, plain), all = std::ranges::all_of(arguments.files, plain);
  if (!given.files.empty() && some && !replacement.empty())
    throw Failure(kUsage,
                  "--model: with models among the files it would replace those, too; give NAME=PATH, where NAME "
                  "is one of the workflow's models");
  if (given.files.empty() && !all)
    throw Failure(kUsage, fmt::format("--model {}: expected a .gguf file, a folder of a model or hf:ORG/NAME",
                                      arguments.files.front()));
  if (all && !(arguments.workflow.set.empty() && arguments.workflow.relay.empty()))
    throw Failure(kUsage, "--set and --relay are for workflows; what a plain model does, its requests say");
  return {load(arguments), replacement};
}

std::string url_of(const serve::ServeOptions& options, int port) {
  const bool is_ipv6 = options.address.find(':') != std::string::npos;
  return is_ipv6 ? fmt::format("http://[{}]:{}", options.address, port)
                 : fmt::format("http://{}:{}", options.address, port);
}

int serve_workflows(const ServeArguments& arguments) {
  if (const std::string reason = serve::why_no_server(); !reason.empty())
    throw Failure(kResources, "this build of Baton has no server: " + reason);
  const std::stop_token stop = interrupted();
  serve::ServeOptions options = arguments.server;
  options.keys = keys_of(arguments);
  options.run_timeout =
      arguments.timeout == "0" ? std::chrono::milliseconds(0) : duration_of_option(arguments.timeout, "--timeout");
  options.drain_timeout = duration_of_option(arguments.drain, "--drain");
  options.approval_timeout = arguments.approval == "0" ? std::chrono::milliseconds(0)
                                                       : duration_of_option(arguments.approval, "--approval-timeout");
  if (!arguments.quiet) options.on_log = [](const std::string& line) { note(printable(line, Lines::fold) + "\n"); };
  std::optional<TraceQueue> traces;
  if (!arguments.trace.empty()) {
    traces.emplace(TraceTarget(arguments.trace),
                   [](const std::string& line) { note(printable(line, Lines::fold) + "\n"); });
    options.follow_run = [&traces] { return traces->follow(); };
  }
  const auto [workflows, model] = served(arguments);
  const Engine engine = Engine::open(arguments.engine.options(model, arguments.quiet));
  serve::Server server(engine, workflows, options);  // first, so that a port that is taken is known at once
  for (const serve::ServedWorkflow& one : workflows.all()) engine.prepare(one.workflow);
  if (!arguments.quiet)
    note(fmt::format("serving {} at {} {}\n", workflows.names(), url_of(options, server.port()),
                     options.keys.empty()
                         ? "without a key, for this machine alone"
                         : fmt::format("with {} key{}", options.keys.size(), options.keys.size() == 1 ? "" : "s")));
  server.serve(stop);
  return kOk;
}

}  // namespace

void add_serve(CommandLine& line) {
  auto* verb = line.add_verb("serve", "Answer HTTP requests with workflows or plain models, in OpenAI's interface");
  auto arguments = std::make_shared<ServeArguments>();
  serve::ServeOptions& server = arguments->server;
  verb->add_option("files", arguments->files,
                   "Workflow files; each is a model, by its file's name or NAME. A .gguf file, a folder of a model or "
                   "hf:ORG/NAME is served as it is")
      ->type_name("[NAME=]FILE");
  verb->add_option("--address", server.address, "Where to listen; an address of other machines needs a key")
      ->capture_default_str();
  verb->add_option("--port", server.port, "0: one that is free")->range(0, 65535)->capture_default_str();
  verb->add_option("--key-file", arguments->key_file,
                   "Keys that requests must carry, one a line; also BATON_SERVE_KEY in the environment")
      ->type_name("FILE");
  verb->add_option("--message", arguments->messages,
                   "The input that the user's message fills; by default the one that is required")
      ->type_name("[NAME=]INPUT")
      ->allow_extra_args(false);
  arguments->inputs.add_to(*verb);
  arguments->workflow.add_settings_to(*verb);
  arguments->engine.add_to(*verb);
  verb->add_option("--max-body", server.max_body_bytes, "Bytes of a request, as 512KB or 4MB")
      ->as_size()
      ->type_name("SIZE")
      ->capture_default_str();
  verb->add_option("--max-running", server.max_running, "Requests at a time")
      ->type_name("N")
      ->range(1, 4096)
      ->capture_default_str();
  verb->add_option("--max-waiting", server.max_waiting, "Requests that wait for others to end; more are refused")
      ->type_name("N")
      ->range(1, 1'000'000)
      ->capture_default_str();
  verb->add_option("--max-connections", server.max_connections, "Open connections; more wait to be accepted")
      ->type_name("N")
      ->range(1, 1'000'000)
      ->capture_default_str();
  verb->add_option("--rate", server.requests_per_minute,
                   "Requests a minute of each key, without keys of each address; 0: any number")
      ->type_name("N")
      ->range(0, 1'000'000)
      ->capture_default_str();
  verb->add_option("--timeout", arguments->timeout, "Of a run; 0: none")->type_name("TIME")->capture_default_str();
  verb->add_option("--drain", arguments->drain, "How long running requests may go on after SIGTERM or Ctrl-C")
      ->type_name("TIME")
      ->capture_default_str();
  verb->add_option("--approval-timeout", arguments->approval,
                   "How long a call that has to be approved waits for its answer; 0: nobody is asked")
      ->type_name("TIME")
      ->capture_default_str();
  verb->add_option("--trace", arguments->trace, "Send a trace of each run to a collector, or write it into a file")
      ->type_name("otlp|URL|FILE");
  verb->add_flag("-q,--quiet", arguments->quiet, "No line on each request");
  verb->footer(
      "Paths: / (a page to run workflows), /v1/models, /v1/chat/completions, /v1/completions, /v1/responses,\n"
      "/v1/messages (Anthropic's), /v1/approvals (calls that wait for an approval), /health, /metrics.\n"
      "The user's last message fills the workflow's input; earlier ones fill an input of type messages, if there is\n"
      "one. Ctrl-C or SIGTERM ends the server once running requests have ended; a second one ends it at once.\n\n"
      "Examples:\n"
      "  baton serve team.yaml\n"
      "  baton serve --model qwen2.5-coder-1.5b.gguf\n"
      "  baton serve team.yaml qwen2.5-coder-1.5b.gguf\n"
      "  curl http://127.0.0.1:8080/v1/chat/completions -H 'Content-Type: application/json' \\\n"
      "    -d '{\"model\": \"team\", \"messages\": [{\"role\": \"user\", \"content\": \"How many legs have 7 "
      "hens?\"}]}'\n\n"
      "  export BATON_SERVE_KEY=\"$(openssl rand -hex 24)\"\n"
      "  baton serve maths=team.yaml chat.yaml --address 0.0.0.0 --rate 60");
  verb->run([arguments] { return serve_workflows(*arguments); });
}

}  // namespace baton::cli
