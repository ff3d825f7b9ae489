// SPDX-License-Identifier: Apache-2.0
// Two agents in this process, from C: one answers, one checks. Uses only the C interface.
//
//   hello_team_c ["A question"]        with the shipped model, or the one in BATON_MODEL
#include <baton/c.h>

#include <stdio.h>
#include <stdlib.h>

static const char* const kTeam =
    "version: 1\n"
    "name: hello-team\n"
    "inputs: {question: {type: string, required: true}}\n"
    "models: {main: {path: \"${env:BATON_MODEL:-nano}\"}}\n"
    "defaults: {max_tokens: 120}\n"
    "agents:\n"
    "  analyst:\n"
    "    role: Mathematical Analyst\n"
    "    prompt:\n"
    "      system: >-\n"
    "        You are a mathematical analyst. You will be given a math problem and maybe answers of other agents.\n"
    "        Repeat the problem, name each quantity with a letter, then put in the numbers.\n"
    "        The last line is only the final result.\n"
    "      user: \"Question:\\n{{ question }}\"\n"
    "  inspector:\n"
    "    role: Inspector\n"
    "    prompt:\n"
    "      system: >-\n"
    "        You are an inspector. You will be given a math problem and answers of other agents.\n"
    "        Repeat the problem, solve it step by step, then check every answer and say which step is wrong.\n"
    "        The last line is only the final result.\n"
    "      user: \"Question:\\n{{ question }}\\n\\nAnalyst:\\n{{ agent_analyst_current }}\"\n"
    "workflow: {topology: chain, agents: [analyst, inspector]}\n"
    "outputs: {answer: \"{{ agent_inspector_current }}\"}\n";

// Prints each agent's text as it is written.
static baton_status show(baton_run* run, baton_error** error) {
  for (;;) {
    baton_event* event;
    const baton_status status = baton_run_next(&event, run, -1, error);
    if (status != BATON_OK) return status == BATON_END ? BATON_OK : status;
    const baton_event_type type = baton_event_get_type(event);
    if (type == BATON_EVENT_AGENT_STARTED) printf("\n[%s]\n", baton_event_agent(event));
    if (type == BATON_EVENT_TOKEN) {
      fputs(baton_event_text(event, NULL), stdout);
      fflush(stdout);
    }
    baton_event_free(event);
  }
}

static baton_status ask(const char* question, baton_error** error) {
  baton_engine* engine = NULL;
  baton_workflow* workflow = NULL;
  baton_run* run = NULL;
  char* answer = NULL;

  const baton_pair inputs[] = {{"question", question}};
  baton_run_options options;
  baton_run_options_init(&options, sizeof options);
  options.inputs = inputs;
  options.input_count = 1;

  baton_status status = baton_engine_open(&engine, NULL, error);
  if (status == BATON_OK) status = baton_workflow_parse(&workflow, kTeam, NULL, error);
  if (status == BATON_OK) status = baton_engine_start(&run, engine, workflow, &options, error);
  if (status == BATON_OK) status = show(run, error);
  if (status == BATON_OK) status = baton_run_wait(run, -1, error);
  if (status == BATON_OK) status = baton_run_output(&answer, NULL, run, "answer", error);
  if (status == BATON_OK) printf("\n\n[answer]\n%s\n", answer);

  baton_string_free(answer);
  baton_run_free(run);
  baton_workflow_free(workflow);
  baton_engine_free(engine);
  return status;
}

int main(int argc, char** argv) {
  baton_error* error = NULL;
  const baton_status status = ask(
      argc > 1 ? argv[1]
               : "Noah pays for 2 books at 7 coins each with 75 coins. How many coins does he get back from the shop?",
      &error);
  if (status != BATON_OK) fprintf(stderr, "%s: %s\n", baton_status_name(status), baton_error_message(error));
  baton_error_free(error);
  return status == BATON_OK ? EXIT_SUCCESS : EXIT_FAILURE;
}
