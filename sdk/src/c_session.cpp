// SPDX-License-Identifier: Apache-2.0
// The sessions of baton/c.h.
#include "engine/base/json_fields.h"  // of the layers below: before any public header

#include "sdk/src/c_handles.h"

#include <baton/session.h>

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
