// SPDX-License-Identifier: Apache-2.0
// The fields of a run's record as one table: each field's name in the JSON, its member, what it may hold, and its value
// in an older record that lacks it. workflows/run/record.cpp writes the JSON by it, and sdk/report/data.cpp reads it.
// A new field is a member in baton/run_record.h and a row here.
#pragma once

#include <baton/run_record.h>

namespace baton {

/// FieldsOf<Record>::visit(fields, record) calls a function of `fields` for each field, in the order of the JSON. The
/// last argument of a call, if there are three, is the value of a field that is absent. The functions:
///   text, id, turn_id         a text; an id or a turn's id have their own form
///   count                     a whole number from 0
///   number, share             a finite number from 0; a share is at most 1
///   known                     a number from 0; a negative one means unknown and is null in the JSON
///   truth                     true or false
///   word, word_or_null        the name of an enumeration's value
///   object, object_or_null    a record
///   list, list_or_none        records; none if the field is absent
///   round                     a whole number from 1
///   shares                    texts with a share each
///   schema                    the version of the table that the record was written with
///   unsigned_number           a whole number of 64 bits
///   bytes                     a size
///   texts, texts_or_none      texts by name, in the order of the file; none if the field is absent
///   group                     an object of fields of the same record
template <class Record>
struct FieldsOf;

template <>
struct FieldsOf<KvRecord> {
  template <class Fields, class Record>
  static void visit(Fields& fields, Record& record) {
    fields.count("entries", record.entries);
    fields.count("reused", record.reused);
    fields.count("computed", record.computed);
    fields.count("ahead", record.ahead, 0);
    fields.share("reuse_rate", record.reuse_rate);
    fields.count("stored_tokens", record.stored_tokens, 0);
    fields.number("stored_ms", record.stored_ms, 0);
  }
};

template <>
struct FieldsOf<SlotAnchors> {
  template <class Fields, class Record>
  static void visit(Fields& fields, Record& record) {
    fields.count("anchors", record.anchors);
    fields.share("ambiguity", record.ambiguity);
    fields.number("distance", record.distance);
    fields.known("predicted_error", record.predicted_error);
  }
};

template <>
struct FieldsOf<SlotRecord> {
  template <class Fields, class Record>
  static void visit(Fields& fields, Record& record) {
    fields.text("name", record.name);
    fields.count("tokens", record.tokens);
    fields.text("method", record.method);
    fields.count("reused_tokens", record.reused_tokens);
    fields.count("recomputed_tokens", record.recomputed_tokens);
    fields.count("ahead_tokens", record.ahead_tokens, 0);
    fields.share("kv_reuse_rate", record.kv_reuse_rate);
    fields.share("kv_reuse_bound", record.kv_reuse_bound, record.kv_reuse_rate);
    fields.count("hops", record.hops);
    fields.truth("corrected", record.corrected, false);
    fields.text("reason", record.reason);
    fields.object_or_null("anchors", record.anchors);
  }
};

template <>
struct FieldsOf<ToolUse> {
  template <class Fields, class Record>
  static void visit(Fields& fields, Record& record) {
    fields.text("tool", record.tool);
    fields.text("arguments", record.arguments);
    fields.text("code", record.code);
    fields.truth("ok", record.ok);
    fields.text("result", record.result);
    fields.number("wall_ms", record.wall_ms);
    fields.count("generation", record.generation);
    fields.count("left_out", record.left_out, 0);
    fields.text("summary", record.summary, "");
  }
};

template <>
struct FieldsOf<HistoryRecord> {
  template <class Fields, class Record>
  static void visit(Fields& fields, Record& record) {
    fields.count("runs", record.runs);
    fields.count("forgotten", record.forgotten);
    fields.count("tokens", record.tokens);
    fields.count("continued", record.continued);
  }
};

template <>
struct FieldsOf<AgentRecord> {
  template <class Fields, class Record>
  static void visit(Fields& fields, Record& record) {
    fields.id("agent", record.agent);
    fields.turn_id("turn", record.turn);
    fields.text("role", record.role);
    fields.text("model", record.model, "");
    fields.round("round", record.round);
    fields.word("state", record.state);
    fields.text("error", record.error, "");
    fields.count("attempts", record.attempts, 1);
    fields.count("prompt_tokens", record.prompt_tokens);
    fields.count("output_tokens", record.output_tokens);
    fields.text("output", record.output);
    fields.text("answer", record.answer, "");
    fields.text("thinking", record.thinking, "");
    fields.count("thinking_tokens", record.thinking_tokens, 0);
    fields.shares("probabilities", record.probabilities);
    fields.list_or_none("tools", record.tools);
    fields.word_or_null("finish_reason", record.finish_reason);
    fields.truth("truncated", record.truncated, record.finish_reason == FinishReason::length);
    fields.object("kv", record.kv);
    fields.number("ttft_ms", record.ttft_ms);
    fields.number("prefill_ms", record.prefill_ms);
    fields.number("decode_ms", record.decode_ms);
    fields.number("tokens_per_s", record.tokens_per_s);
    fields.count("drafted_tokens", record.drafted_tokens, 0);
    fields.count("accepted_tokens", record.accepted_tokens, 0);
    fields.number("tentative_ms", record.tentative_ms, 0);
    fields.count("tentative_tokens", record.tentative_tokens, 0);
    fields.count("confirmed_tokens", record.confirmed_tokens, 0);
    fields.known("expected_nats", record.expected_nats);
    fields.known("guard_nats", record.guard_nats);
    fields.known("guard_change", record.guard_change);
    fields.count("decisions", record.decisions, 0);
    fields.count("decisions_exact", record.decisions_exact, 0);
    fields.count("decisions_changed", record.decisions_changed, 0);
    fields.list("slots", record.slots);
    fields.object_or_null("history", record.history);
  }
};

template <>
struct FieldsOf<ServerRecord> {
  template <class Fields, class Record>
  static void visit(Fields& fields, Record& record) {
    fields.text("name", record.name);
    fields.text("title", record.title);
    fields.count("tools", record.tools);
    fields.number("start_ms", record.start_ms);
    fields.text("error", record.error);
  }
};

template <>
struct FieldsOf<WarningRecord> {
  template <class Fields, class Record>
  static void visit(Fields& fields, Record& record) {
    fields.word("code", record.code);
    fields.text("agent", record.agent);
    fields.text("turn", record.turn);
    fields.text("message", record.message);
    fields.count("count", record.count);
  }
};

template <>
struct FieldsOf<MemoryRecord> {
  template <class Fields, class Record>
  static void visit(Fields& fields, Record& record) {
    fields.bytes("weights_bytes", record.weights_bytes);
    fields.bytes("kv_peak_bytes", record.kv_peak_bytes);
    fields.bytes("segments_peak_bytes", record.segments_peak_bytes);
    fields.bytes("host_segments_peak_bytes", record.host_segments_peak_bytes, 0);
    fields.bytes("anchors_bytes", record.method_bytes, 0);
  }
};

template <>
struct FieldsOf<RunRecord> {
  template <class Fields, class Record>
  static void visit(Fields& fields, Record& record) {
    fields.schema("schema", record.schema);
    fields.text("version", record.version, "");
    fields.text("date", record.date, "");
    fields.text("local_time", record.local_time, "");
    fields.text("workflow", record.workflow);
    fields.word("state", record.state);
    fields.text("error", record.error, "");
    fields.word_or_null("error_kind", record.error_kind);
    fields.group("model", [&record](auto& model) {
      model.text("path", record.model_path);
      model.text("fingerprint", record.model_fingerprint);
    });
    fields.text("device", record.device);
    fields.text("device_fallback", record.device_fallback, "");
    fields.count("threads", record.threads, 0);
    fields.texts_or_none("engines", record.engines);
    fields.text("relay", record.relay);
    fields.unsigned_number("seed", record.seed);
    fields.texts_or_none("inputs", record.inputs);
    fields.texts("outputs", record.outputs);
    fields.number("load_ms", record.load_ms, 0);
    fields.number("measure_ms", record.measure_ms, 0);
    fields.number("wall_ms", record.wall_ms);
    fields.count("measured_turns", record.measured_turns, 0);
    fields.number("measured_ms", record.measured_ms, 0);
    fields.list("agents", record.agents);
    fields.list_or_none("servers", record.servers);
    fields.list_or_none("warnings", record.warnings);
    fields.object("memory", record.memory);
  }
};

}  // namespace baton
