// SPDX-License-Identifier: Apache-2.0
// Tools and workflows of baton/c.h.
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <atomic>
#include <mutex>
#include <system_error>

#include "engine/base/json_fields.h"
#include "engine/base/utf8.h"
#include "sdk/src/c_support.h"
#include "workflows/run/record.h"

#include <baton/session.h>

using namespace baton::c_face;
using OrderedJson = nlohmann::ordered_json;

struct baton_tools {
  baton::Tools tools;
};

struct baton_tool_call {
  std::string text;
  std::map<std::string, std::string> options;
  std::string options_json;
  std::string arguments;
  std::chrono::milliseconds timeout;
  std::stop_token stop;
  std::string result;
};

baton_status baton_tools_create(baton_tools** tools, baton_error** error) {
  return guarded(error, [&] {
    auto& result = result_place(tools, "tools");
    result = new baton_tools();
    return BATON_OK;
  });
}

namespace {

void add_tool(baton_tools* tools, const char* name, baton::ToolDefinition definition, baton_tool_callback callback,
              void* user_data) {
  required(tools, "tools");
  const std::string read_name = read_text(name, "name");
  if (callback == nullptr) throw baton::InputError("callback is NULL");
  tools->tools.add(read_name, std::move(definition), [callback, user_data](const baton::ToolCall& call) {
    baton_tool_call given{baton::utf8::repaired(call.text), {}, {}, call.arguments, call.timeout, call.stop, {}};
    for (const auto& [key, value] : call.options) given.options[key] = baton::utf8::repaired(value);
    given.options_json = baton::dump(OrderedJson(given.options), -1);
    const bool ok = callback(&given, user_data);
    if (!ok && given.result.empty()) given.result = "error: the tool failed";
    return baton::ToolResult{ok, std::move(given.result)};
  });
}

}  // namespace

baton_status baton_tools_add(baton_tools* tools, const char* name, baton_tool_callback callback, void* user_data,
                             baton_error** error) {
  return guarded(error, [&] {
    add_tool(tools, name, {}, callback, user_data);
    return BATON_OK;
  });
}

baton_status baton_tools_add_callable(baton_tools* tools, const char* name, const char* description,
                                      const char* parameters, baton_tool_callback callback, void* user_data,
                                      baton_error** error) {
  return guarded(error, [&] {
    baton::ToolDefinition definition{read_optional_text(description, "description"),
                                     read_text(parameters, "parameters")};
    if (definition.parameters.empty()) throw baton::InputError("parameters is empty");
    add_tool(tools, name, std::move(definition), callback, user_data);
    return BATON_OK;
  });
}

void baton_tools_free(baton_tools* tools) { delete tools; }

const char* baton_tool_call_text(const baton_tool_call* call, size_t* length) {
  if (length != nullptr) *length = call == nullptr ? 0 : call->text.size();
  return call == nullptr ? "" : call->text.c_str();
}

const char* baton_tool_call_option(const baton_tool_call* call, const char* name) {
  if (call == nullptr || name == nullptr) return nullptr;
  for (const auto& [key, value] : call->options) {
    if (key == name) return value.c_str();
  }
  return nullptr;
}

const char* baton_tool_call_options(const baton_tool_call* call) {
  return call == nullptr ? "{}" : call->options_json.c_str();
}

const char* baton_tool_call_arguments(const baton_tool_call* call) {
  return call == nullptr ? "" : call->arguments.c_str();
}

int64_t baton_tool_call_timeout_ms(const baton_tool_call* call) { return call == nullptr ? 0 : call->timeout.count(); }

bool baton_tool_call_stop_requested(const baton_tool_call* call) {
  return call != nullptr && call->stop.stop_requested();
}

baton_status baton_tool_call_return(baton_tool_call* call, const char* text, baton_error** error) {
  return guarded(error, [&] {
    required(text, "text");
    required(call, "call").result = read_optional_text(text, "text");
    return BATON_OK;
  });
}

namespace {

baton_workflow_options read(const baton_workflow_options* options) {
  constexpr std::size_t first = offsetof(baton_workflow_options, name) + sizeof(const char*);
  return read_options(options, first, "baton_workflow_options");
}

/// Reads a workflow with `read_workflow`, given the options of C++.
template <typename Read>
baton_workflow* make_workflow(const baton_workflow_options& options, Read read_workflow) {
  baton::WorkflowOptions translated;
  if (options.tools != nullptr) translated.tools = options.tools->tools;
  translated.set = read_pairs(options.set, options.set_count, "set");
  return new baton_workflow{read_workflow(translated)};
}

}  // namespace

void baton_workflow_options_init(baton_workflow_options* options, size_t size) { init_options(options, size); }

baton_status baton_workflow_load(baton_workflow** workflow, const char* file, const baton_workflow_options* options,
                                 baton_error** error) {
  return guarded(error, [&] {
    auto& result = result_place(workflow, "workflow");
    const std::string path = read_text(file, "file");
    result = make_workflow(read(options), [&](const baton::WorkflowOptions& translated) {
      return baton::Workflow::load(path, translated);
    });
    return BATON_OK;
  });
}

baton_status baton_workflow_parse(baton_workflow** workflow, const char* yaml, const baton_workflow_options* options,
                                  baton_error** error) {
  return guarded(error, [&] {
    auto& result = result_place(workflow, "workflow");
    required(yaml, "yaml");
    const baton_workflow_options known = read(options);
    const std::string name = known.name == nullptr ? "workflow.yaml" : read_text(known.name, "name");
    result = make_workflow(known, [&](const baton::WorkflowOptions& translated) {
      return baton::Workflow::parse(yaml, translated, name);
    });
    return BATON_OK;
  });
}

baton_status baton_workflow_describe(char** json, const baton_workflow* workflow, baton_error** error) {
  return guarded(error, [&] {
    auto& result = result_place(json, "json");
    const baton::Workflow& of = required(workflow, "workflow").workflow;
    OrderedJson inputs = OrderedJson::array(), agents = OrderedJson::array();
    for (const auto& input : of.inputs()) {
      inputs.push_back({{"name", input.name},
                        {"required", input.required},
                        {"default", input.default_value ? OrderedJson(*input.default_value) : OrderedJson(nullptr)},
                        {"description", input.description}});
    }
    for (const auto& agent : of.agents()) {
      agents.push_back({{"id", agent.id}, {"role", agent.role}, {"has_answer", agent.has_answer}});
    }
    const OrderedJson all = {{"name", of.name()}, {"inputs", inputs}, {"agents", agents}, {"outputs", of.outputs()}};
    result = new_text(baton::dump(all, 2));
    return BATON_OK;
  });
}

baton_status baton_workflow_graph(char** text, const baton_workflow* workflow, const char* format,
                                  baton_error** error) {
  return guarded(error, [&] {
    auto& result = result_place(text, "text");
    result = new_text(required(workflow, "workflow").workflow.graph(read_text(format, "format")));
    return BATON_OK;
  });
}

void baton_workflow_free(baton_workflow* workflow) { delete workflow; }

using namespace baton::c_face;

struct baton_session {
  baton::Session session;
  baton::Workflow workflow;
};

baton_status baton_session_create(baton_session** session, const baton_engine* engine, const baton_workflow* workflow,
                                  baton_error** error) {
  return guarded(error, [&] {
    auto& result = result_place(session, "session");
    const baton::Engine& by = required(engine, "engine").engine;
    const baton::Workflow& of = required(workflow, "workflow").workflow;
    result = new baton_session{by.session(of), of};
    return BATON_OK;
  });
}

baton_status baton_session_restore(baton_session** session, const baton_engine* engine, const baton_workflow* workflow,
                                   const char* file, baton_error** error) {
  return guarded(error, [&] {
    auto& result = result_place(session, "session");
    const std::string name = read_text(file, "file");
    // Copies: a callback may free the handles meanwhile.
    const baton::Workflow of = required(workflow, "workflow").workflow;
    const baton::Engine by = required(engine, "engine").engine;
    result = new baton_session{by.restore(of, name), of};
    return BATON_OK;
  });
}

baton_status baton_session_start(baton_run** run, const baton_session* session, const baton_run_options* options,
                                 baton_error** error) {
  return guarded(error, [&] {
    auto& result = result_place(run, "run");
    const baton_session of = required(session, "session");  // a copy: a callback may free the handle meanwhile
    result = new_run(of.workflow, options,
                     [&](const baton::RunOptions& translated) { return of.session.start(translated); });
    return BATON_OK;
  });
}

int32_t baton_session_runs(const baton_session* session) { return session == nullptr ? 0 : session->session.runs(); }

int32_t baton_session_rewindable(const baton_session* session) {
  return session == nullptr ? 0 : session->session.rewindable();
}

baton_status baton_session_rewind(baton_session* session, int32_t runs, baton_error** error) {
  return guarded(error, [&] {
    required(session, "session").session.rewind(runs);
    return BATON_OK;
  });
}

baton_status baton_session_fork(baton_session** other, const baton_session* session, baton_error** error) {
  return guarded(error, [&] {
    auto& result = result_place(other, "other");
    const baton_session& of = required(session, "session");
    result = new baton_session{of.session.fork(), of.workflow};
    return BATON_OK;
  });
}

baton_status baton_session_messages(char** json, const baton_session* session, const char* agent, baton_error** error) {
  return guarded(error, [&] {
    auto& result = result_place(json, "json");
    const std::string id = read_text(agent, "agent");
    nlohmann::json messages = nlohmann::json::array();
    for (const baton::Message& message : required(session, "session").session.messages(id))
      messages.push_back({{"role", message.role}, {"text", message.text}});
    result = new_text(messages.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
    return BATON_OK;
  });
}

baton_status baton_session_save(const baton_session* session, const char* file, baton_error** error) {
  return guarded(error, [&] {
    const std::string name = read_text(file, "file");
    required(session, "session").session.save(name);
    return BATON_OK;
  });
}

void baton_session_free(baton_session* session) { delete session; }

using namespace baton::c_face;
using std::chrono::milliseconds;

struct baton_event {
  baton_event_type type;
  std::string json;
  std::string agent;
  std::string text;
};

namespace {

// The sessions of baton/c.h.

// The engine, runs and events of baton/c.h.

/// The host's callbacks, as long as it wants to be called.
struct Listener {
  baton_event_callback call;
  void* user_data;
  std::atomic<bool> gone = false;
  std::mutex asking;  // the host's answer is read before it is asked again
  std::stop_source stop;
};

}  // namespace

struct baton_run {
  baton::Run run;
  std::vector<std::string> outputs;
  std::shared_ptr<Listener> listener;
};

namespace {

baton_engine_options read(const baton_engine_options* options) {
  constexpr std::size_t first = offsetof(baton_engine_options, user_data) + sizeof(void*);
  return read_options(options, first, "baton_engine_options");
}

baton_run_options read(const baton_run_options* options) {
  constexpr std::size_t first = offsetof(baton_run_options, user_data) + sizeof(void*);
  return read_options(options, first, "baton_run_options");
}

void check_not_negative(std::int64_t value, const char* name) {
  if (value < 0) throw baton::InputError(fmt::format("{}: expected at least 0, found {}", name, value));
}

std::function<void(const std::string&, double)> progress(baton_progress_callback call, void* user_data) {
  if (call == nullptr) return {};
  return [=](const std::string& model, double share) { call(model.c_str(), share, user_data); };
}

template <baton_event_type type, typename Typed>
constexpr bool stands_for = std::is_same_v<std::variant_alternative_t<type - 1, baton::Event>, Typed>;
static_assert(stands_for<BATON_EVENT_RUN_STARTED, baton::RunStarted> &&
              stands_for<BATON_EVENT_AGENT_STARTED, baton::AgentStarted> &&
              stands_for<BATON_EVENT_PREFILL, baton::Prefill> && stands_for<BATON_EVENT_TOKEN, baton::Token> &&
              stands_for<BATON_EVENT_TOOL_CALLED, baton::ToolCalled> &&
              stands_for<BATON_EVENT_AGENT_FINISHED, baton::AgentFinished> &&
              stands_for<BATON_EVENT_RELAYED, baton::Relayed> && stands_for<BATON_EVENT_WARNING, baton::Warning> &&
              stands_for<BATON_EVENT_RUN_FINISHED, baton::RunFinished> &&
              stands_for<BATON_EVENT_PREFILL_PROGRESS, baton::PrefillProgress> &&
              stands_for<BATON_EVENT_TENTATIVE_TOKEN, baton::TentativeToken> &&
              stands_for<BATON_EVENT_CONFIRMED, baton::Confirmed> && stands_for<BATON_EVENT_ASKED, baton::Asked> &&
              stands_for<BATON_EVENT_THINKING_TOKEN, baton::ThinkingToken> &&
              stands_for<BATON_EVENT_CALL_DECIDED, baton::CallDecided> &&
              stands_for<BATON_EVENT_CALL_BEGUN, baton::CallBegun>);

/// Agent and text of an event, if it has them.
struct Parts {
  std::string agent;
  std::string text;

  void operator()(const baton::RunStarted&) {}
  void operator()(const baton::AgentStarted& event) { agent = event.agent; }
  void operator()(const baton::Prefill& event) { agent = event.agent; }
  void operator()(const baton::Token& event) { agent = event.agent, text = event.text; }
  void operator()(const baton::ToolCalled& event) { agent = event.agent, text = event.result; }
  void operator()(const baton::AgentFinished& event) { agent = event.record.agent, text = event.record.output; }
  void operator()(const baton::Relayed& event) { agent = event.to; }
  void operator()(const baton::Warning& event) { agent = event.agent, text = event.message; }
  void operator()(const baton::RunFinished&) {}
  void operator()(const baton::PrefillProgress& event) { agent = event.agent; }
  void operator()(const baton::TentativeToken& event) { agent = event.agent, text = event.text; }
  void operator()(const baton::CallDecided& event) { agent = event.agent, text = event.answer; }
  void operator()(const baton::CallBegun& event) { agent = event.agent, text = event.arguments; }
  void operator()(const baton::ThinkingToken& event) { agent = event.agent, text = event.text; }
  void operator()(const baton::Confirmed& event) { agent = event.agent; }
  void operator()(const baton::Asked& event) { agent = event.agent, text = event.question; }
};

baton_event make_event(const baton::Event& event) {
  Parts parts;
  std::visit(parts, event);
  return {static_cast<baton_event_type>(event.index() + 1), to_json(event), std::move(parts.agent),
          baton::utf8::repaired(parts.text)};
}

baton_status status_of(const baton::RunRecord& record) {
  if (record.state == baton::RunState::ok) return BATON_OK;
  if (record.state == baton::RunState::timeout) return BATON_TIMEOUT;
  if (record.state == baton::RunState::cancelled) return BATON_STOPPED;
  if (record.state == baton::RunState::suspended) return BATON_SUSPENDED;
  if (record.error_kind == baton::ErrorKind::input) return BATON_USAGE;
  return record.error_kind == baton::ErrorKind::resources ? BATON_RESOURCES : BATON_FAILED;
}

/// None: as long as it takes.
std::optional<milliseconds> time_to_wait(std::int64_t timeout_ms) {
  if (timeout_ms < 0) return {};
  return milliseconds(timeout_ms);
}

}  // namespace

void baton_engine_options_init(baton_engine_options* options, size_t size) { init_options(options, size); }
void baton_run_options_init(baton_run_options* options, size_t size) { init_options(options, size); }

baton_status baton_engine_open(baton_engine** engine, const baton_engine_options* options, baton_error** error) {
  return guarded(error, [&] {
    auto& result = result_place(engine, "engine");
    const baton_engine_options given = read(options);
    check_not_negative(given.threads, "threads");
    check_not_negative(given.kv_budget_bytes, "kv_budget_bytes");
    baton::EngineOptions translated;
    translated.model = read_optional_text(given.model, "model");
    if (given.device != nullptr) translated.device = read_text(given.device, "device");
    translated.threads = given.threads;
    translated.kv_budget = given.kv_budget_bytes;
    translated.slowdown = given.slowdown;
    translated.drafts = given.no_drafts == 0;
    translated.allow_servers = given.allow_servers != 0;
    translated.kv_dtype = read_optional_text(given.kv_dtype, "kv_dtype");
    translated.learned_folder = read_optional_text(given.learned_folder, "learned_folder");
    translated.on_load = progress(given.on_load, given.user_data);
    translated.on_profile = progress(given.on_profile, given.user_data);
    if (given.on_warning != nullptr) {
      translated.on_warning = [given](const std::string& message) {
        given.on_warning(baton::utf8::repaired(message).c_str(), given.user_data);
      };
    }
    result = new baton_engine{baton::Engine::open(translated)};
    return BATON_OK;
  });
}

baton_status baton_engine_prepare(const baton_engine* engine, const baton_workflow* workflow, baton_error** error) {
  return guarded(error, [&] {
    // Copies: a callback may free the handles meanwhile.
    const baton::Workflow of = required(workflow, "workflow").workflow;
    const baton::Engine by = required(engine, "engine").engine;
    by.prepare(of);
    return BATON_OK;
  });
}

void baton_engine_free(baton_engine* engine) { delete engine; }

baton_event_type baton_event_get_type(const baton_event* event) {
  return event == nullptr ? BATON_EVENT_NONE : event->type;
}
const char* baton_event_json(const baton_event* event) { return event == nullptr ? "" : event->json.c_str(); }
const char* baton_event_agent(const baton_event* event) { return event == nullptr ? "" : event->agent.c_str(); }

const char* baton_event_text(const baton_event* event, size_t* length) {
  if (length != nullptr) *length = event == nullptr ? 0 : event->text.size();
  return event == nullptr ? "" : event->text.c_str();
}

void baton_event_free(baton_event* event) { delete event; }

baton_status baton_engine_start(baton_run** run, const baton_engine* engine, const baton_workflow* workflow,
                                const baton_run_options* options, baton_error** error) {
  return guarded(error, [&] {
    auto& result = result_place(run, "run");
    const baton::Engine& by = required(engine, "engine").engine;
    const baton::Workflow& of = required(workflow, "workflow").workflow;
    result = new_run(of, options, [&](const baton::RunOptions& translated) { return by.start(of, translated); });
    return BATON_OK;
  });
}

baton_run* baton::c_face::new_run(const Workflow& workflow, const baton_run_options* options,
                                  const std::function<Run(const RunOptions& options)>& start) {
  const baton_run_options given = read(options);
  check_not_negative(given.timeout_ms, "timeout_ms");
  RunOptions translated;
  for (auto& [name, value] : read_pairs(given.inputs, given.input_count, "inputs")) {
    translated.inputs.emplace(std::move(name), std::move(value));
  }
  if (given.has_seed) translated.seed = given.seed;
  translated.timeout = std::chrono::milliseconds(given.timeout_ms);
  for (auto& [name, value] : read_pairs(given.answers, given.answer_count, "answers"))
    translated.answers.insert_or_assign(std::move(name), std::move(value));
  translated.record = read_optional_text(given.record, "record");
  const auto listener = std::make_shared<Listener>();
  listener->call = given.on_event;
  listener->user_data = given.user_data;
  translated.stop = listener->stop.get_token();
  if (listener->call != nullptr) {
    translated.on_event = [listener](const Event& event) {
      if (listener->gone) return;
      const baton_event shown = make_event(event);
      if (!listener->call(&shown, listener->user_data)) listener->stop.request_stop();
    };
  }
  if (given.on_ask != nullptr) {
    translated.on_ask = [listener, ask = given.on_ask](const Asked& asked, const std::stop_token&) {
      const baton_event shown = make_event(asked);
      const std::lock_guard lock(listener->asking);
      const char* answer = listener->gone ? nullptr : ask(&shown, listener->user_data);
      return answer == nullptr ? std::nullopt : std::optional(read_text(answer, "answer"));
    };
  }
  if (given.on_end != nullptr) {
    translated.on_end = [listener, call = given.on_end] {
      if (!listener->gone) call(listener->user_data);
    };
  }
  return new baton_run{start(translated), workflow.outputs(), listener};
}

baton_status baton_run_next(baton_event** event, baton_run* run, int64_t timeout_ms, baton_error** error) {
  return guarded(error, [&] {
    auto& result = result_place(event, "event");
    baton::Event next;
    switch (required(run, "run").run.next(next, time_to_wait(timeout_ms))) {
      case baton::Run::Next::pending:
        return BATON_PENDING;
      case baton::Run::Next::over:
        return BATON_END;
      case baton::Run::Next::event:
        break;
    }
    result = new baton_event(make_event(next));
    return BATON_OK;
  });
}

baton_status baton_run_wait(const baton_run* run, int64_t timeout_ms, baton_error** error) {
  return guarded(error, [&] {
    required(run, "run");
    const auto time = time_to_wait(timeout_ms);
    if (time && !run->run.wait_for(*time)) return BATON_PENDING;
    const baton::RunRecord record = run->run.get();
    const baton_status status = status_of(record);
    return status == BATON_OK ? status : set_error(error, status, record.error);
  });
}

baton_status baton_run_record(char** json, const baton_run* run, baton_error** error) {
  return guarded(error, [&] {
    auto& result = result_place(json, "json");
    result = new_text(required(run, "run").run.get().to_json());
    return BATON_OK;
  });
}

baton_status baton_run_record_error(char** text, const baton_run* run, baton_error** error) {
  return guarded(error, [&] {
    auto& result = result_place(text, "text");
    result = new_text(baton::utf8::repaired(required(run, "run").run.get().record_error));
    return BATON_OK;
  });
}

baton_status baton_run_output(char** text, size_t* length, const baton_run* run, const char* name,
                              baton_error** error) {
  return guarded(error, [&] {
    if (length != nullptr) *length = 0;
    auto& result = result_place(text, "text");
    const std::string wanted = read_text(name, "name");
    const auto& names = required(run, "run").outputs;
    if (std::find(names.begin(), names.end(), wanted) == names.end()) {
      throw baton::InputError(fmt::format("unknown output '{}'; the workflow has: {}", wanted,
                                          names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", "))));
    }
    const auto outputs = required(run, "run").run.get().outputs;
    const auto found = outputs.find(wanted);
    const std::string valid = found == outputs.end() ? std::string() : baton::utf8::repaired(found->second);
    result = new_text(valid);
    if (length != nullptr) *length = valid.size();
    return BATON_OK;
  });
}

void baton_run_stop(baton_run* run) {
  if (run != nullptr) run->run.stop();
}

void baton_run_cancel(baton_run* run) {
  if (run != nullptr) run->run.cancel();
}

void baton_run_free(baton_run* run) {
  if (run == nullptr) return;
  run->listener->gone = true;
  delete run;  // in a callback that holds the run up it does not wait
}
