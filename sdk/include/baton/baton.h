// SPDX-License-Identifier: Apache-2.0
// Baton: teams of LLM agents, described in YAML, run in this process. Include this one header; sessions, previews, the
// machine and measuring have their own: baton/session.h, preview.h, system.h, version.h, bench.h, learn.h, perplexity.h
// and profile.h.
//
//   auto engine   = baton::Engine::open({.device = "auto"});
//   auto workflow = baton::Workflow::load("team.yaml");
//   auto record   = engine.run(workflow, {.inputs = {{"user_question", "What is 6 x 7?"}}});
//   std::cout << record.outputs.at("answer") << '\n';
#pragma once

#include <baton/engine.h>
#include <baton/errors.h>
#include <baton/workflow.h>
