// SPDX-License-Identifier: Apache-2.0
// The file: a head of fixed size, a JSON text that says whose memory it is and what was said, and the KV of each
// agent's conversation as the JSON names it. Numbers are little-endian. All of it is covered by checksums, which find
// damage, not malice: whoever can write the file decides what the agents remember.
#include <fmt/format.h>

#include <bit>
#include <deque>
#include <filesystem>
#include <mutex>
#include <system_error>

#include "agents/prompts/conversation.h"
#include "engine/base/errors.h"
#include "engine/base/files.h"
#include "engine/base/hash.h"
#include "engine/base/json_fields.h"
#include "engine/kv/kv_store.h"
#include "engine/reuse/between_models.h"
#include "sdk/src/internal.h"

#include <baton/session.h>

namespace baton::inline v1 {

struct SavedSession {
  SessionMemory memory;
  int runs = 0;
};

/// `open`: the session's workflow with its models. Throws ResourceError.
void write_session(const std::filesystem::path& file, const SavedSession& session, const OpenPlan& open);

/// Throws InputError for a file that is missing, damaged, of another version or of another workflow or model, and
/// ResourceError when there is no memory.
SavedSession read_session(const std::filesystem::path& file, const OpenPlan& open);

namespace {

static_assert(std::endian::native == std::endian::little);

constexpr std::uint64_t kMagic = 0x53455353'4e544142u;  // "BATNSESS"
constexpr std::uint64_t kVersion = 1;
constexpr std::uint64_t kMaxJson = std::uint64_t{256} << 20;
constexpr int kMaxRuns = 1 << 30;

struct SessionHead {
  std::uint64_t magic = kMagic;
  std::uint64_t version = kVersion;
  std::uint64_t json_bytes = 0;
  std::uint64_t json_hash = 0;
  std::uint64_t head_hash = 0;  // hash of the fields before
};

std::uint64_t hash_of(const SessionHead& head) { return hash_bytes(&head, offsetof(SessionHead, head_hash)); }

std::string hex(std::uint64_t hash) { return fmt::format("{:016x}", hash); }

/// Bytes of the KV of so many tokens, with the state of recurrent layers behind them.
std::size_t context_bytes(const KvLayout& layout, std::size_t tokens) {
  return tokens == 0 ? 0 : layout.token_bytes() * tokens + layout.state_bytes;
}

/// Describes what an agent's KV depends on: weights, tokenizer, types, and the device that computed it.
std::string key_of(const OpenPlan& open, const std::string& name, const LocalEngine& engine) {
  DType dtype = DType::bf16, activations = DType::f32;
  for (const ModelSpec& model : open.plan->spec->models) {
    if (model.name == name || name.empty()) dtype = model.dtype, activations = model.activations;
  }
  const std::string& device = engine.info().device;
  return fmt::format("{} {} {} {}", kv_key_of(engine.model()), device.substr(0, device.find(':')),
                     static_cast<int>(dtype), static_cast<int>(activations));
}

/// The same of a model on a server, which keeps its KV.
std::string key_of(const InferenceEngine& server) { return "server " + server.text().fingerprint; }

/// The name of the model that an agent speaks with; empty: the only one, or none.
std::string model_of(const OpenPlan& open, const std::string& agent) {
  for (const PlannedTurn& turn : open.plan->turns) {
    if (turn.agent == agent && turn.has_prompt()) return turn.model;
  }
  return {};
}

/// The hash of an agent's system messages as the file has them: what a conversation of it began with.
std::string head_of(const AgentSpec& agent) {
  std::uint64_t hash = kFnvStart;
  const auto add = [&](std::string_view text) {
    for (const char c : text) hash = fnv1a(hash, static_cast<unsigned char>(c));
    hash = fnv1a(hash, 0xFF);  // in no UTF-8
  };
  for (const MessageSpec& message : agent.messages) {
    if (message.role != "system") continue;
    for (const PromptItem& item : message.items) {
      hash = fnv1a(hash, static_cast<unsigned char>(item.loop));
      for (const TemplatePiece& piece : item.pieces) {
        add(piece.text);
        add(piece.placeholder);
      }
    }
    add("");
  }
  return hex(hash);
}

Json json_of(const std::vector<SaidMessage>& messages) {
  Json json = Json::array();
  for (const SaidMessage& message : messages) {
    Json& one = json.emplace_back(Json{{"role", message.role}, {"text", message.text}});
    for (const ChatCall& call : message.calls.calls) one["calls"].push_back({call.id, call.name, call.arguments});
    if (!message.calls.answered.empty()) one["answered"] = message.calls.answered;
  }
  return json;
}

/// Reads what write_session wrote. Calls `damaged` for anything that does not fit.
class SessionReader {
 public:
  SessionReader(const std::filesystem::path& file, const OpenPlan& open) : file_(file), open_(open), input_(file) {}

  SavedSession read() {
    SessionHead head;
    if (input_.size() < sizeof(SessionHead)) damaged("it ends too early");
    input_.read(0, std::as_writable_bytes(std::span(&head, 1)));
    if (head.magic != kMagic) fail("it is not a session");
    if (head.version != kVersion)
      fail(fmt::format("it has version {} of the format; expected {}", head.version, kVersion));
    if (head.head_hash != hash_of(head)) damaged("a checksum is wrong");
    if (head.json_bytes > kMaxJson || head.json_bytes > input_.size() - sizeof(SessionHead))
      damaged("it ends too early");
    std::string text(head.json_bytes, '\0');
    input_.read(sizeof(SessionHead), std::as_writable_bytes(std::span(text)));
    if (hash_bytes(text.data(), text.size()) != head.json_hash) damaged("a checksum is wrong");
    data_ = sizeof(SessionHead) + head.json_bytes;

    const std::string origin = file_.string();
    const JsonDocument document = parse_json(text, origin);
    const JsonFields fields(*document, origin);
    const std::string workflow = fields.text_or("workflow", "");
    if (workflow != open_.plan->spec->name)
      fail(fmt::format("it is of workflow {}; expected {}", printed(workflow), printed(open_.plan->spec->name)));
    SavedSession session;
    session.runs = fields.integer("runs", 0, kMaxRuns);
    const Json* agents = fields.find("agents");
    if (agents == nullptr || !agents->is_object()) damaged("it has no agents");
    for (const auto& [id, agent] : agents->items()) session.memory[id] = conversation(id, agent, origin);
    return session;
  }

 private:
  [[noreturn]] void fail(const std::string& why) const {
    throw InputError(fmt::format("session file {}: {}", file_.string(), why));
  }
  [[noreturn]] void damaged(const std::string& why) const { fail("it is damaged: " + why); }
  static std::string printed(const std::string& text) { return describe(Json(text)); }

  std::shared_ptr<const Conversation> conversation(const std::string& id, const Json& json, const std::string& origin) {
    const std::string name = model_of(open_, id);
    const AgentSpec* agent = open_.plan->spec->agent(id);
    if (agent == nullptr) fail(fmt::format("the workflow has no agent {}", printed(id)));
    const auto engine = open_.engines.find(name);
    const auto server = open_.servers.find(name);
    const bool served = server != open_.servers.end();
    if (engine == open_.engines.end() && !served) fail(fmt::format("agent '{}' has no prompt", id));
    const ModelText& model = served ? server->second->text() : engine->second->text();
    const JsonFields fields(json, origin, "agents." + id + ".");
    if (fields.text_or("model", "") != (served ? key_of(*server->second) : key_of(open_, name, *engine->second)))
      fail(fmt::format("agent '{}' has another model now, or another tokenizer, type or device", id));

    const std::string head = fields.text_or("system", "");  // none: written by an earlier version
    if (!head.empty() && head != head_of(*agent))
      fail(
          fmt::format("the system message of agent '{}' has changed since it was written; expected the one that its "
                      "conversation began with, or another file for a new session",
                      id));

    auto conversation = std::make_shared<Conversation>();
    const std::int32_t vocabulary = served ? model.tokenizer->size() : engine->second->model().config.vocabulary;
    std::vector<TokenId> tokens;
    for (const TokenId token : fields.integers("tokens", 0, vocabulary - 1)) tokens.push_back(token);
    conversation->tokens = std::move(tokens);
    if (conversation->tokens.empty()) damaged("a conversation has no tokens");
    if (fields.find("bare") != nullptr) {
      std::vector<TokenId> bare;
      for (const TokenId token : fields.integers("bare", 0, vocabulary - 1)) bare.push_back(token);
      conversation->bare = std::move(bare);
    }
    conversation->head = messages(fields, "head");
    const Json* exchanges = fields.find("exchanges");
    if (exchanges == nullptr || !exchanges->is_array()) damaged("a conversation has no exchanges");
    for (const Json& exchange : *exchanges) conversation->exchanges.push_back(messages_of(exchange));
    if (!served) conversation->context = context(fields, *conversation, *engine->second);
    return conversation;
  }

  std::vector<SaidMessage> messages(const JsonFields& fields, const std::string& key) const {
    const Json* json = fields.find(key);
    if (json == nullptr) damaged(fmt::format("it has no '{}'", key));
    return messages_of(*json);
  }

  std::vector<SaidMessage> messages_of(const Json& json) const {
    std::vector<SaidMessage> messages;
    if (!json.is_array()) damaged("messages are not a list");
    for (const Json& message : json) {
      const auto role = message.is_object() ? message.find("role") : message.end();
      const auto text = message.is_object() ? message.find("text") : message.end();
      if (role == message.end() || text == message.end() || !role->is_string() || !text->is_string())
        damaged("a message has no role or no text");
      messages.push_back({role->get<std::string>(), text->get<std::string>(), calls_of(message)});
      const std::string& name = messages.back().role;
      const bool is_result = name == "tool" && !messages.back().calls.answered.empty();
      if (name != "system" && name != "user" && name != "assistant" && !is_result)
        damaged("a message has an unknown role");
    }
    return messages;
  }

  MessageCalls calls_of(const Json& message) const {
    MessageCalls calls;
    if (const auto answered = message.find("answered"); answered != message.end()) {
      if (!answered->is_string()) damaged("a result names no call");
      calls.answered = answered->get<std::string>();
    }
    const auto list = message.find("calls");
    if (list == message.end()) return calls;
    for (const Json& call : *list) {
      const auto is_text = [](const Json& part) { return part.is_string(); };
      if (!call.is_array() || call.size() != 3 || !std::all_of(call.begin(), call.end(), is_text))
        damaged("a call is not a list of three texts");
      calls.calls.push_back({call[0], call[1], call[2]});
    }
    return calls;
  }

  /// The KV lies behind that of the agents before.
  ContextHandle context(const JsonFields& fields, const Conversation& conversation, LocalEngine& engine) {
    const auto n = static_cast<std::int32_t>(conversation.tokens.size());
    const std::int32_t length = fields.integer("kv_tokens", 0, n);
    if (length == 0) return nullptr;
    const std::int32_t exact = fields.integer("exact", 0, length);
    const std::int32_t hops = fields.integer("hops", 0, 1 << 20);
    const KvLayout layout = engine.model().kv_layout();
    const std::uint64_t bytes = context_bytes(layout, static_cast<std::size_t>(length));
    if (bytes > input_.size() - data_) damaged("it ends too early");
    std::vector<std::byte> kv(bytes);
    input_.read(data_, kv);
    data_ += bytes;
    if (hex(hash_bytes(kv.data(), kv.size())) != fields.text_or("kv_hash", "")) damaged("a checksum is wrong");
    const auto state = std::span(kv).last(length == 0 ? 0 : layout.state_bytes);
    if (!is_finite_kv(std::span(kv).first(kv.size() - state.size()), layout.dtype()) ||
        !is_finite_kv(state, DType::f32))
      damaged("the KV holds what is no number");
    std::vector<TokenId> tokens(conversation.tokens.begin(), conversation.tokens.begin() + length);
    return engine.make_context(std::move(tokens), exact, exact == length ? 0 : std::max(hops, 1), std::move(kv));
  }

  const std::filesystem::path& file_;
  const OpenPlan& open_;
  InputFile input_;
  std::uint64_t data_ = 0;  // where the next KV begins
};

}  // namespace

void write_session(const std::filesystem::path& file, const SavedSession& session, const OpenPlan& open) {
  with_resource_errors([&] {
    Json agents = Json::object();
    std::vector<std::vector<std::byte>> all;  // in the order of the agents
    for (const auto& [id, conversation] : session.memory) {
      const std::string name = model_of(open, id);
      const auto server = open.servers.find(name);
      LocalEngine* engine = server != open.servers.end() ? nullptr : open.engines.at(name).get();
      Json agent = {{"model", engine == nullptr ? key_of(*server->second) : key_of(open, name, *engine)},
                    {"system", head_of(*open.plan->spec->agent(id))},
                    {"tokens", conversation->tokens.ids()},
                    {"head", json_of(conversation->head)}};
      if (!conversation->bare.empty()) agent["bare"] = conversation->bare.ids();
      agent["exchanges"] = Json::array();
      for (const auto& exchange : conversation->exchanges) agent["exchanges"].push_back(json_of(exchange));
      const ContextHandle& context = conversation->context;
      std::vector<std::byte> kv =
          context && engine != nullptr ? engine->context_bytes(context) : std::vector<std::byte>();
      const KvLayout layout = engine == nullptr ? KvLayout{} : engine->model().kv_layout();
      const auto n =
          kv.empty() ? 0 : static_cast<std::int32_t>((kv.size() - layout.state_bytes) / layout.token_bytes());
      agent["kv_tokens"] = n;
      agent["exact"] = context ? std::min(context->exact, n) : 0;
      agent["hops"] = context ? context->hops : 0;
      agent["kv_hash"] = hex(hash_bytes(kv.data(), kv.size()));
      agents[id] = std::move(agent);
      all.push_back(std::move(kv));
    }
    const Json json = {{"workflow", open.plan->spec->name}, {"runs", session.runs}, {"agents", std::move(agents)}};
    const std::string text = json.dump(-1, ' ', false, Json::error_handler_t::replace);
    SessionHead head;
    head.json_bytes = text.size();
    head.json_hash = hash_bytes(text.data(), text.size());
    head.head_hash = hash_of(head);
    AtomicFile out(file);
    out.write(std::as_bytes(std::span(&head, 1)));
    out.write(std::as_bytes(std::span(text)));
    for (const std::vector<std::byte>& kv : all) out.write(kv);
    out.commit();
  });
}

SavedSession read_session(const std::filesystem::path& file, const OpenPlan& open) {
  try {
    return SessionReader(file, open).read();
  } catch (const ModelError& error) {  // from the file and its JSON
    throw InputError(fmt::format("session file {}: {}", file.string(), error.what()));
  } catch (const BackendError& error) {
    throw ResourceError(ResourceError::Kind::memory, error.what());
  } catch (const std::bad_alloc&) {
    throw ResourceError(ResourceError::Kind::memory, "out of memory");
  }
}

struct Session::State {
  static constexpr std::size_t kMaxPast = 64;

  State(const Engine& of_engine, const Workflow& of_workflow, SavedSession saved)
      : engine(of_engine), workflow(of_workflow), runs(saved.runs) {
    past.push_back(std::move(saved.memory));
    servers = servers_of(workflow);
  }
  static std::shared_ptr<State> make(const Engine& engine, const Workflow& workflow, SavedSession saved) {
    return make_owned<State>(engine, workflow, std::move(saved));
  }

  Engine engine;
  Workflow workflow;
  std::string local_time = local_time_text(local_seconds_now());  // what chat templates show as now, in all its runs
  std::shared_ptr<McpServers> servers;                            // the servers of all its runs; null: none
  mutable std::mutex mutex;
  std::deque<SessionMemory> past;  // after each of the last runs; the last is the present
  int runs = 0;
  std::uint64_t started = 0;  // runs
  bool running = false;       // the last of them

  /// The mutex is held.
  void must_be_still(const char* call) const {
    if (running) throw InputError(fmt::format("session: {}: a run of the session has not ended", call));
  }
  /// A run may say more than once that it is over.
  void over(std::uint64_t run, const SessionMemory* memory) noexcept {
    const std::lock_guard lock(mutex);
    if (!running || run != started) return;
    const bool kept = memory != nullptr && try_to([&] { past.push_back(*memory); });
    running = false;
    if (!kept) return;
    if (past.size() > kMaxPast + 1) past.pop_front();
    ++runs;
  }
};

Session new_session(const Engine& engine, const Workflow& workflow) {
  return Session(Session::State::make(engine, workflow, SavedSession{}));
}

Session restored_session(const Engine& engine, const Workflow& workflow, const std::filesystem::path& file) {
  const OpenPlan open = open_models(engine, workflow);
  return Session(Session::State::make(engine, workflow, read_session(file, open)));
}

Run Session::start(const RunOptions& options) const {
  if (!options.finished.empty())
    throw InputError("session: start: turns of an earlier run cannot be taken over into a session");
  if (!options.record.empty()) throw InputError("session: start: a run of a session cannot be recorded");
  SessionMemory memory;
  std::uint64_t run = 0;
  {
    const std::lock_guard lock(state_->mutex);
    state_->must_be_still("start");
    memory = state_->past.back();
    run = ++state_->started;
    state_->running = true;
  }
  try {
    RunOptions timed = options;
    if (timed.local_time.empty()) timed.local_time = state_->local_time;
    return start_run(
        state_->engine, state_->workflow, timed, std::move(memory),
        [state = state_, run](const SessionMemory* now) { state->over(run, now); }, state_->servers);
  } catch (...) {
    state_->over(run, nullptr);
    throw;
  }
}

RunRecord Session::run(const RunOptions& options) const { return start(options).get(); }

int Session::runs() const {
  const std::lock_guard lock(state_->mutex);
  return state_->runs;
}

int Session::rewindable() const {
  const std::lock_guard lock(state_->mutex);
  return static_cast<int>(state_->past.size()) - 1;
}

void Session::rewind(int runs) const {
  const std::lock_guard lock(state_->mutex);
  state_->must_be_still("rewind");
  const auto possible = static_cast<int>(state_->past.size()) - 1;
  if (runs < 0 || runs > possible)
    throw InputError(fmt::format("session: rewind: expected from 0 to {} runs, found {}", possible, runs));
  state_->past.erase(state_->past.end() - runs, state_->past.end());
  state_->runs -= runs;
}

Session Session::fork() const {
  const std::lock_guard lock(state_->mutex);
  auto state = State::make(state_->engine, state_->workflow, SavedSession{});
  state->local_time = state_->local_time;
  state->past = state_->past;
  state->runs = state_->runs;
  return Session(std::move(state));
}

std::vector<Message> Session::messages(const std::string& agent) const {
  if (state_->workflow.impl().plan->spec->agent(agent) == nullptr)
    throw InputError(fmt::format("session: the workflow has no agent '{}'", agent));
  const std::lock_guard lock(state_->mutex);
  std::vector<Message> messages;
  const auto found = state_->past.back().find(agent);
  if (found == state_->past.back().end()) return messages;
  for (const SaidMessage& said : found->second->head) messages.push_back({said.role, said.text});
  for (const auto& exchange : found->second->exchanges) {
    for (const SaidMessage& said : exchange) messages.push_back({said.role, said.text});
  }
  return messages;
}

void Session::save(const std::filesystem::path& file) const {
  SavedSession saved;
  {
    const std::lock_guard lock(state_->mutex);
    saved = {state_->past.back(), state_->runs};
  }
  write_session(file, saved, open_models(state_->engine, state_->workflow));
}

}  // namespace baton::inline v1
