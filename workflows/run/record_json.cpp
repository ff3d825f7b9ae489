// SPDX-License-Identifier: Apache-2.0
// The JSON of records and events.
#include "workflows/run/record_json.h"
#include "engine/base/json/record_fields.h"

#include <baton/event.h>
#include <baton/run_record.h>

#include <cmath>
#include <nlohmann/json.hpp>

namespace baton {

using OrderedJson = nlohmann::ordered_json;

double finite(double value) { return std::isfinite(value) ? value : 0.0; }

std::string dump(const OrderedJson& json, int indent) {
  return json.dump(indent, ' ', false, OrderedJson::error_handler_t::replace);
}

/// In the order of the texts.
OrderedJson json_of(const NamedTexts& texts) {
  OrderedJson json = OrderedJson::object();
  for (const auto& [name, text] : texts) json[name] = text;
  return json;
}

namespace {

/// Writes the fields of a record, by the table in engine/base/json/record_fields.h.
class RecordWriter {
 public:
  template <class Record>
  static OrderedJson written(const Record& record) {
    RecordWriter writer;
    FieldsOf<Record>::visit(writer, record);
    return std::move(writer.json_);
  }

  void text(const char* name, const std::string& value, const char* = nullptr) { json_[name] = value; }
  void id(const char* name, const std::string& value) { json_[name] = value; }
  void turn_id(const char* name, const std::string& value) { json_[name] = value; }
  void count(const char* name, std::int64_t value, std::int64_t = 0) { json_[name] = value; }
  void round(const char* name, int value) { json_[name] = value; }
  void number(const char* name, double value, double = 0) { json_[name] = finite(value); }
  void share(const char* name, double value, double = 0) { json_[name] = finite(value); }
  void known(const char* name, double value) {
    json_[name] = value < 0.0 ? OrderedJson(nullptr) : OrderedJson(finite(value));
  }
  void truth(const char* name, bool value, bool = false) { json_[name] = value; }
  template <class Word>
  void word(const char* name, Word value) {
    json_[name] = name_of(value);
  }
  template <class Word>
  void word_or_null(const char* name, const Word& value) {
    json_[name] = name_of(value);
  }
  template <class Record>
  void object(const char* name, const Record& record) {
    json_[name] = written(record);
  }
  template <class Record>
  void object_or_null(const char* name, const std::optional<Record>& record) {
    json_[name] = record ? written(*record) : OrderedJson(nullptr);
  }
  template <class Record>
  void list(const char* name, const std::vector<Record>& records) {
    OrderedJson& json = json_[name] = OrderedJson::array();
    for (const Record& record : records) json.push_back(written(record));
  }
  template <class Record>
  void list_or_none(const char* name, const std::vector<Record>& records) {
    list(name, records);
  }
  void shares(const char* name, const std::vector<std::pair<std::string, double>>& shares) {
    OrderedJson& json = json_[name] = OrderedJson::object();
    for (const auto& [text, share] : shares) json[text] = finite(share);
  }

 private:
  OrderedJson json_ = OrderedJson::object();
};

}  // namespace

OrderedJson json_of(const KvRecord& record) { return RecordWriter::written(record); }
OrderedJson json_of(const SlotRecord& record) { return RecordWriter::written(record); }
OrderedJson json_of(const AgentRecord& record) { return RecordWriter::written(record); }

OrderedJson json_of(const RunRecord& record) {
  OrderedJson agents = OrderedJson::array();
  for (const AgentRecord& agent : record.agents) agents.push_back(json_of(agent));
  OrderedJson servers = OrderedJson::array();
  for (const ServerRecord& server : record.servers) {
    servers.push_back({{"name", server.name},
                       {"title", server.title},
                       {"tools", server.tools},
                       {"start_ms", finite(server.start_ms)},
                       {"error", server.error}});
  }
  return {{"schema", record.schema},
          {"version", record.version},
          {"date", record.date},
          {"workflow", record.workflow},
          {"state", name_of(record.state)},
          {"error", record.error},
          {"error_kind", name_of(record.error_kind)},
          {"model", {{"path", record.model_path}, {"fingerprint", record.model_fingerprint}}},
          {"device", record.device},
          {"device_fallback", record.device_fallback},
          {"threads", record.threads},
          {"relay", record.relay},
          {"seed", record.seed},
          {"inputs", json_of(record.inputs)},
          {"outputs", json_of(record.outputs)},
          {"load_ms", finite(record.load_ms)},
          {"measure_ms", finite(record.measure_ms)},
          {"wall_ms", finite(record.wall_ms)},
          {"agents", std::move(agents)},
          {"servers", std::move(servers)},
          {"memory",
           {{"weights_bytes", record.memory.weights_bytes},
            {"kv_peak_bytes", record.memory.kv_peak_bytes},
            {"segments_peak_bytes", record.memory.segments_peak_bytes},
            {"host_segments_peak_bytes", record.memory.host_segments_peak_bytes},
            {"anchors_bytes", record.memory.anchors_bytes}}}};
}

std::string RunRecord::to_json(int indent) const { return dump(json_of(*this), indent); }

namespace {

using OrderedJson = nlohmann::ordered_json;

OrderedJson json_of_event(const RunStarted& event) {
  return {{"type", "run_started"}, {"workflow", event.workflow}, {"turns", event.turns}};
}

OrderedJson json_of_event(const AgentStarted& event) {
  return {{"type", "agent_started"},
          {"agent", event.agent},
          {"role", event.role},
          {"round", event.round},
          {"prompt_tokens", event.prompt_tokens}};
}

OrderedJson json_of_event(const Prefill& event) {
  return {{"type", "prefill"},
          {"agent", event.agent},
          {"round", event.round},
          {"kv", json_of(event.kv)},
          {"prefill_ms", finite(event.prefill_ms)}};
}

OrderedJson json_of_event(const Token& event) {
  return {{"type", "token"}, {"agent", event.agent}, {"round", event.round}, {"id", event.id}, {"text", event.text}};
}

OrderedJson json_of_event(const ToolCalled& event) {
  return {{"type", "tool_called"},  {"agent", event.agent},
          {"turn", event.turn},     {"round", event.round},
          {"tool", event.tool},     {"arguments", event.arguments},
          {"code", event.code},     {"ok", event.ok},
          {"result", event.result}, {"wall_ms", finite(event.wall_ms)}};
}

OrderedJson json_of_event(const AgentFinished& event) {
  return {{"type", "agent_finished"}, {"record", json_of(event.record)}};
}

OrderedJson json_of_event(const Relayed& event) {
  return {{"type", "relayed"},
          {"from", event.from},
          {"to", event.to},
          {"round", event.round},
          {"slot", json_of(event.slot)}};
}

OrderedJson json_of_event(const Warning& event) { return {{"type", "warning"}, {"message", event.message}}; }

OrderedJson json_of_event(const PrefillProgress& event) {
  return {{"type", "prefill_progress"},
          {"agent", event.agent},
          {"round", event.round},
          {"tokens", event.tokens},
          {"prompt_tokens", event.prompt_tokens}};
}

OrderedJson json_of_event(const TentativeToken& event) {
  return {{"type", "tentative_token"},
          {"agent", event.agent},
          {"round", event.round},
          {"id", event.id},
          {"text", event.text}};
}

OrderedJson json_of_event(const Confirmed& event) {
  return {{"type", "confirmed"},
          {"agent", event.agent},
          {"round", event.round},
          {"tokens", event.tokens},
          {"tentative", event.tentative}};
}

OrderedJson json_of_event(const Asked& event) {
  return {{"type", "asked"},      {"agent", event.agent},       {"turn", event.turn},
          {"round", event.round}, {"question", event.question}, {"choices", event.choices}};
}

OrderedJson json_of_event(const RunFinished& event) {
  return {{"type", "run_finished"}, {"record", json_of(event.record)}};
}

}  // namespace

std::string to_json(const Event& event, std::optional<double> t_ms) {
  OrderedJson json = std::visit([](const auto& typed) { return json_of_event(typed); }, event);
  if (t_ms) json["t_ms"] = finite(std::round(*t_ms * 1000) / 1000);  // microseconds
  return dump(json, -1);
}

}  // namespace baton
