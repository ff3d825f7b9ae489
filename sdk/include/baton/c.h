// SPDX-License-Identifier: Apache-2.0
// The C interface: teams of LLM agents, described in YAML, run in this process. C11 and C++; for bindings of other
// languages too. From C++ use baton/baton.h, the same core. docs/c.md has an example.
//
// Errors    Functions that can fail return a baton_status. Their last argument, which may be NULL, is given a new
//           baton_error, or NULL after success; the caller frees it. Nothing is thrown and nothing aborts. Results come
//           through the first arguments, which are NULL after a failure.
// Text      To the library: UTF-8 with a NUL at its end, copied before the call returns. From it: the same; what a
//           model or a tool wrote that is not UTF-8 is U+FFFD there. char* is the caller's, for baton_string_free;
//           const char* belongs to what it was asked of.
// Handles   Each baton_..._free takes NULL, and the handles may be freed in any order: a run keeps its engine and its
//           workflow. A handle must not be freed while another thread is in a call with it.
// Threads   Every function may be called from any thread, also at the same time with the same handle, but for
//           baton_tools (one thread at a time) and baton_tool_call (the thread that it was given to).
// Callbacks run on threads of the library. They return soon (a tool may take its time), and neither throw nor jump
//           out. None comes any more when the engine and all its runs have been freed. What would wait for itself is
//           BATON_USAGE: waiting for a run in its own on_event or tool, or, in a callback of an engine, for any run
//           of that engine or for baton_engine_prepare. A tool may wait for another run.
// Growth    Option structs begin with their size, so that a later library takes those of an earlier header; in each
//           member zero means the default. Enums may grow: an unknown status is a failure, an unknown event to be
//           skipped.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// NOLINTBEGIN(readability-identifier-naming): the names of C
#ifdef __cplusplus
extern "C" {
#endif

/// Version of the library that is linked, "0.1.0". Static storage.
const char* baton_version(void);

// ---- Errors ---------------------------------------------------------------------------------------------------------

/// To 130: as the exit codes of the runner `baton`.
typedef enum baton_status {
  BATON_OK = 0,
  BATON_FAILED = 1,     // a run failed, or what has no other code
  BATON_USAGE = 2,      // an argument: NULL, not UTF-8, out of range; an input that is missing, unknown or too long
  BATON_INVALID = 3,    // a workflow that cannot be used
  BATON_RESOURCES = 4,  // memory, a device or a model is not available
  BATON_TIMEOUT = 5,    // the run's own timeout ended it
  BATON_SUSPENDED = 7,  // the run can do no more without an answer of the host's (`ask`)
  BATON_STOPPED = 130,  // the run was stopped or cancelled
  BATON_PENDING = 200,  // not within the time to wait; no error
  BATON_END = 201       // no event is left and the run is over; no error
} baton_status;

/// "ok", "failed", "usage", ...; "unknown" for a number that is not a status. Static storage.
const char* baton_status_name(baton_status status);

/// What went wrong. Immutable. NULL when memory for the error itself could not be allocated; the functions below accept
/// NULL.
typedef struct baton_error baton_error;

/// BATON_OK for NULL.
baton_status baton_error_status(const baton_error* error);

/// For a person. Of an invalid workflow every mistake as a compiler shows it: place, code, line, caret, hint.
/// Empty for NULL.
const char* baton_error_message(const baton_error* error);

/// The mistakes of an invalid workflow for a program, a JSON array sorted by place, otherwise "[]":
/// {"file", "line", "column", "length", "code", "message", "hint", "source_line"}, lines and columns from 1.
const char* baton_error_mistakes(const baton_error* error);

/// Frees an error that a function gave.
void baton_error_free(baton_error* error);

/// Frees a char* that the library gave.
void baton_string_free(char* text);

// ---- Tools ----------------------------------------------------------------------------------------------------------

/// The host's own functions, which a workflow calls by name before it builds an agent's prompt, or which models call.
typedef struct baton_tools baton_tools;

/// One call of a tool, valid until its callback returns.
typedef struct baton_tool_call baton_tool_call;

/// Runs a tool; called concurrently from several threads, each with its own call. The text given to
/// baton_tool_call_return fills condition_<agent>_current, or is given to the model that called the tool. False: the
/// call failed; the text, then an error message, is used nevertheless. The run waits for the tool, so that the tool
/// must not wait for that run; others it may wait for.
typedef bool (*baton_tool_callback)(baton_tool_call* call, void* user_data);

/// An empty list of tools, for baton_tools_free. BATON_RESOURCES without memory.
baton_status baton_tools_create(baton_tools** tools, baton_error** error);

/// Adds a tool. BATON_USAGE when the name is not [a-z][a-z0-9_]* or is taken. The callback is called only while the
/// workflow that was loaded with it, or a run of that workflow, exists.
baton_status baton_tools_add(baton_tools* tools, const char* name, baton_tool_callback callback, void* user_data,
                             baton_error** error);

/// Adds a tool that models can call too, as {call: NAME} in an agent's `tools`. `description`: what a model is told of
/// it, or NULL; `parameters`: a JSON Schema of the arguments, an object, in the subset of docs/yaml.md; otherwise
/// BATON_USAGE.
baton_status baton_tools_add_callable(baton_tools* tools, const char* name, const char* description,
                                      const char* parameters, baton_tool_callback callback, void* user_data,
                                      baton_error** error);

/// Workflows copy their tools, so that the tools may be freed once the workflows are loaded.
void baton_tools_free(baton_tools* tools);

/// What the tool works on, the text named by `from`. `length` may be NULL: bytes without the NUL, where a model may
/// have written NULs before it.
const char* baton_tool_call_text(const baton_tool_call* call, size_t* length);

/// The value of another of the tool's keys in the YAML, as text. NULL for an absent key.
const char* baton_tool_call_option(const baton_tool_call* call, const char* name);

/// All other keys of the tool as a JSON object of strings.
const char* baton_tool_call_options(const baton_tool_call* call);

/// Of a call by a model: the arguments, a JSON object of the tool's schema. "" before a prompt.
const char* baton_tool_call_arguments(const baton_tool_call* call);

/// Time limit of the call in milliseconds.
int64_t baton_tool_call_timeout_ms(const baton_tool_call* call);

/// True once the tool should return soon: the run was stopped, or has waited long enough. Poll it often: a run ends
/// only when its tools have returned.
bool baton_tool_call_stop_requested(const baton_tool_call* call);

/// Sets the text of the result, in place of an earlier one.
baton_status baton_tool_call_return(baton_tool_call* call, const char* text, baton_error** error);

// ---- Workflows ------------------------------------------------------------------------------------------------------

/// A name and its value, both UTF-8.
typedef struct baton_pair {
  const char* name;
  const char* value;
} baton_pair;

/// What a workflow is read with; see baton_workflow_options_init.
typedef struct baton_workflow_options {
  size_t size;               // sizeof(baton_workflow_options)
  const baton_tools* tools;  // a workflow that names an unknown tool is invalid
  const baton_pair* set;     // settings in place of the file's, as {"relay.method", "full"}; values are read as YAML
  size_t set_count;
  const char* name;  // of baton_workflow_parse: stands for the file in errors; relative paths start in its folder
} baton_workflow_options;

/// Zeros and the size. `size` is sizeof(baton_workflow_options) as the caller has it.
void baton_workflow_options_init(baton_workflow_options* options, size_t size);

/// A checked workflow. Immutable.
typedef struct baton_workflow baton_workflow;

/// Reads and checks a file; loads no model. `options` may be NULL. BATON_INVALID with every mistake, also for a file
/// that cannot be read.
baton_status baton_workflow_load(baton_workflow** workflow, const char* file, const baton_workflow_options* options,
                                 baton_error** error);

/// The same from text.
baton_status baton_workflow_parse(baton_workflow** workflow, const char* yaml, const baton_workflow_options* options,
                                  baton_error** error);

/// A JSON object: {"name", "inputs": [{"name", "required", "default": text or null, "description"}], "agents": [{"id",
/// "role", "has_answer"}], "outputs": [name]}.
baton_status baton_workflow_describe(char** json, const baton_workflow* workflow, baton_error** error);

/// The expanded graph as "ascii", "mermaid", "dot" or "json".
baton_status baton_workflow_graph(char** text, const baton_workflow* workflow, const char* format, baton_error** error);

/// Frees a workflow; runs and sessions of it keep what they need.
void baton_workflow_free(baton_workflow* workflow);

// ---- Engine ---------------------------------------------------------------------------------------------------------

/// Progress of reading (or profiling) a model: the model's folder and the fraction done, 0 to 1.
typedef void (*baton_progress_callback)(const char* model, double share, void* user_data);

/// Called for problems that end no run.
typedef void (*baton_warning_callback)(const char* message, void* user_data);

/// What an engine is opened with; see baton_engine_options_init.
typedef struct baton_engine_options {
  size_t size;              // sizeof(baton_engine_options)
  const char* model;        // a folder or a bare name, in place of each workflow's default model; NULL: the workflow's
  const char* device;       // "auto" (NULL), "cpu", "cuda", "cuda:N"
  int32_t threads;          // CPU threads; 0: one per core
  int64_t kv_budget_bytes;  // bytes of KV cache per model; 0: half of the free memory
  double slowdown;          // docs/cli.md, --slowdown; 0: 0.67 on the CPU, 0.1 on a GPU
  const char* kv_dtype;     // "bf16" or "f32", in place of the workflow's; NULL: the workflow's
  const char* learned_folder;          // where what methods learn is kept between processes; NULL: nowhere
  baton_progress_callback on_load;     // while weights are read; on the thread that needs the model
  baton_progress_callback on_profile;  // while a model is profiled, which only programs with the laboratory ask for
  baton_warning_callback on_warning;
  void* user_data;        // for the three callbacks
  int32_t no_drafts;      // not 0: tokens are decoded one by one (docs/methods.md, "Drafts"); the answers are the same
  int64_t allow_servers;  // not 0: runs may start the programs and open the addresses of `mcp`; else BATON_USAGE
} baton_engine_options;

/// Zeros and the size. `size` is sizeof(baton_engine_options) as the caller has it.
void baton_engine_options_init(baton_engine_options* options, size_t size);

/// Holds models on their device, each opened once.
typedef struct baton_engine baton_engine;

/// Reads no weights yet. `options` may be NULL. BATON_RESOURCES when `model` is not found.
baton_status baton_engine_open(baton_engine** engine, const baton_engine_options* options, baton_error** error);

/// Opens the models that a workflow needs, so that its first run does not wait. BATON_RESOURCES; BATON_USAGE in
/// a callback of the engine.
baton_status baton_engine_prepare(const baton_engine* engine, const baton_workflow* workflow, baton_error** error);

/// Models stay open until the engine and its last run are freed; the last of these calls waits until the models are
/// closed.
void baton_engine_free(baton_engine* engine);

// ---- Events ---------------------------------------------------------------------------------------------------------

/// The types of events; docs/cli.md has the fields of each.
typedef enum baton_event_type {
  BATON_EVENT_NONE = 0,
  BATON_EVENT_RUN_STARTED = 1,
  BATON_EVENT_AGENT_STARTED = 2,
  BATON_EVENT_PREFILL = 3,
  BATON_EVENT_TOKEN = 4,
  BATON_EVENT_TOOL_CALLED = 5,
  BATON_EVENT_AGENT_FINISHED = 6,
  BATON_EVENT_RELAYED = 7,
  BATON_EVENT_WARNING = 8,
  BATON_EVENT_RUN_FINISHED = 9,
  BATON_EVENT_PREFILL_PROGRESS = 10,
  BATON_EVENT_TENTATIVE_TOKEN = 11,  // method verified: not checked yet; BATON_EVENT_TOKEN brings the answer
  BATON_EVENT_CONFIRMED = 12,
  BATON_EVENT_ASKED = 13,           // a step waits for the host
  BATON_EVENT_THINKING_TOKEN = 14,  // of the model's thinking, before the tokens of the output
  BATON_EVENT_CALL_DECIDED = 15,    // the host has answered whether a model's call may be made
  BATON_EVENT_CALL_BEGUN = 16       // a model's call begins; BATON_EVENT_TOOL_CALLED has what came of it
} baton_event_type;

/// Something that happened in a run. Immutable.
typedef struct baton_event baton_event;

/// BATON_EVENT_NONE for NULL.
baton_event_type baton_event_get_type(const baton_event* event);

/// One line of JSON, as `baton run --events ndjson` prints it (docs/cli.md) but for its time, `t_ms`. Empty for NULL.
const char* baton_event_json(const baton_event* event);

/// The agent of the event (of relayed: the agent that receives the text), or "".
const char* baton_event_agent(const baton_event* event);

/// Of token: the text that became final with the token, possibly empty. Of tool_called: its result. Of agent_finished:
/// its output. Of warning: the message. Of asked: the question. Otherwise "". `length` may be NULL, as in
/// baton_tool_call_text.
const char* baton_event_text(const baton_event* event, size_t* length);

/// Of an event from baton_run_next; a callback's event is not the callback's.
void baton_event_free(baton_event* event);

// ---- Runs -----------------------------------------------------------------------------------------------------------

/// Called with each event in order, never twice at once for one run; the first may come before baton_engine_start
/// returns. False stops the run as baton_run_stop does; the events of its end still come.
typedef bool (*baton_event_callback)(const baton_event* event, void* user_data);

/// Called for a step that asks, on a thread of the library, where it may take its time; `asked` has the agent and the
/// question. Never called twice at once for one run. Returns the answer, UTF-8, which the library reads before it calls
/// again; NULL: there is none yet. A run that is stopped or times out meanwhile ends when it returns.
typedef const char* (*baton_ask_callback)(const baton_event* asked, void* user_data);

/// Called once, after the last event, when the run is over and baton_run_wait waits no more, also if no event said
/// so because a model could not be opened. After baton_run_free it is not called any more.
typedef void (*baton_end_callback)(void* user_data);

/// What a run is started with; see baton_run_options_init.
typedef struct baton_run_options {
  size_t size;               // sizeof(baton_run_options)
  const baton_pair* inputs;  // each name once
  size_t input_count;
  uint64_t seed;  // counts only with has_seed: takes precedence over the workflow's
  bool has_seed;
  int64_t timeout_ms;  // limit of the whole run; 0: none
  baton_event_callback on_event;
  void* user_data;            // for on_event, on_ask and on_end
  baton_ask_callback on_ask;  // NULL: a run that needs an answer ends with BATON_SUSPENDED
  const baton_pair* answers;  // to steps that ask, by turn ("approval", "approval#2"); these are not asked
  size_t answer_count;
  baton_end_callback on_end;
  const char* record;  // a new folder for the record that `baton run --record` writes; NULL: none
} baton_run_options;

/// Zeros and the size. `size` is sizeof(baton_run_options) as the caller has it.
void baton_run_options_init(baton_run_options* options, size_t size);

/// One run of a workflow.
typedef struct baton_run baton_run;

/// Starts a run and returns at once; models that are not open yet are opened by the run. `options` may be NULL.
/// BATON_USAGE for a missing or unknown input.
baton_status baton_engine_start(baton_run** run, const baton_engine* engine, const baton_workflow* workflow,
                                const baton_run_options* options, baton_error** error);

/// The next event, for which it waits `timeout_ms`; below 0: as long as it takes. Events are kept until read; of
/// several readers each event reaches one. BATON_PENDING: none came. BATON_END: all were read and the run is over. In
/// the run's own on_event and tools, and in its engine's callbacks, only with 0.
baton_status baton_run_next(baton_event** event, baton_run* run, int64_t timeout_ms, baton_error** error);

/// Waits for the end, `timeout_ms` or, below 0, as long as it takes. BATON_PENDING: it goes on. Otherwise what became
/// of the run: BATON_OK, BATON_FAILED, BATON_RESOURCES, BATON_TIMEOUT, BATON_SUSPENDED or BATON_STOPPED, with why in
/// `error`. In the run's own on_event and tools, and in its engine's callbacks, only with 0.
baton_status baton_run_wait(const baton_run* run, int64_t timeout_ms, baton_error** error);

/// Waits for the end. The record as `baton run --json` prints it (docs/cli.md), whatever became of the run.
/// BATON_RESOURCES when a model could not be opened: such a run has no record. Not in the run's own on_event and tools,
/// nor in its engine's callbacks.
baton_status baton_run_record(char** json, const baton_run* run, baton_error** error);

/// Waits for the end. Why the folder baton_run_options::record could not be written; empty: it was, or was not asked
/// for. Not in the run's own on_event and tools, nor in its engine's callbacks.
baton_status baton_run_record_error(char** text, const baton_run* run, baton_error** error);

/// Waits for the end. One output of the workflow; after a failure, stop or timeout, what was completed of it; empty
/// after baton_run_cancel. BATON_USAGE for an unknown output. `length` may be NULL. Not in the run's own on_event and
/// tools, nor in its engine's callbacks.
baton_status baton_run_output(char** text, size_t* length, const baton_run* run, const char* name, baton_error** error);

/// Ends the run soon; its record keeps what the agents wrote so far. Returns at once.
void baton_run_stop(baton_run* run);

/// Ends the run soon; the texts of this run are dropped from its record. Returns at once.
void baton_run_cancel(baton_run* run);

/// Cancels the run if it is not over, waits for its end and its callbacks, and frees it. The caller must hold no lock
/// that the callbacks take. on_event is not called any more. In the run's own on_event and tools, and in its engine's
/// callbacks, it does not wait: the run ends by itself.
void baton_run_free(baton_run* run);

// ---- Sessions -------------------------------------------------------------------------------------------------------

/// A session: runs of one workflow whose agents remember the runs before (baton/session.h says what). Safe from any
/// thread, one run at a time.
typedef struct baton_session baton_session;

/// A session that remembers nothing yet. Opens no model.
baton_status baton_session_create(baton_session** session, const baton_engine* engine, const baton_workflow* workflow,
                                  baton_error** error);

/// Goes on with a session that baton_session_save wrote, in this or another process. Opens the models. BATON_RESOURCES;
/// BATON_USAGE for a file that is missing, damaged, or of another workflow or model.
baton_status baton_session_restore(baton_session** session, const baton_engine* engine, const baton_workflow* workflow,
                                   const char* file, baton_error** error);

/// As baton_engine_start. BATON_USAGE while another run of the session has not ended.
baton_status baton_session_start(baton_run** run, const baton_session* session, const baton_run_options* options,
                                 baton_error** error);

/// Runs that are remembered, and how many of them baton_session_rewind can forget. 0 for NULL.
int32_t baton_session_runs(const baton_session* session);
int32_t baton_session_rewindable(const baton_session* session);

/// Forgets the last runs. BATON_USAGE for more than baton_session_rewindable, and while a run has not ended.
baton_status baton_session_rewind(baton_session* session, int32_t runs, baton_error** error);

/// Another session that remembers the same.
baton_status baton_session_fork(baton_session** other, const baton_session* session, baton_error** error);

/// What an agent remembers, a JSON array of {"role", "text"}. BATON_USAGE for an unknown agent.
baton_status baton_session_messages(char** json, const baton_session* session, const char* agent, baton_error** error);

/// Writes the session, with its KV, into a file, in place of one that is there; a run that has not ended is not in it.
/// BATON_RESOURCES when writing fails.
baton_status baton_session_save(const baton_session* session, const char* file, baton_error** error);

/// Frees a session; a run of it that has not ended goes on.
void baton_session_free(baton_session* session);

#ifdef __cplusplus
}
#endif
// NOLINTEND(readability-identifier-naming)
