// SPDX-License-Identifier: Apache-2.0
// The same as main.cpp, over the C interface.
#include <baton/c.h>

#include <stdio.h>
#include <string.h>

static const char* const kTeam =
    "version: 1\n"
    "name: consumer\n"
    "inputs: {question: {type: string, required: true}}\n"
    "models: {main: {path: /no/such/model}}\n"
    "agents:\n"
    "  writer: {prompt: {user: \"{{ question }}\"}}\n"
    "workflow: {topology: single, agents: [writer]}\n"
    "outputs: {answer: \"{{ agent_writer_current }}\"}\n";

int main(void) {
  baton_workflow* workflow = NULL;
  if (baton_workflow_parse(&workflow, kTeam, NULL, NULL) != BATON_OK) return 1;
  char* json = NULL;
  if (baton_workflow_describe(&json, workflow, NULL) != BATON_OK) return 2;
  printf("baton %s from C: %zu bytes about the workflow\n", baton_version(), strlen(json));
  baton_string_free(json);

  baton_error* error = NULL;
  baton_workflow* invalid = NULL;
  if (baton_workflow_parse(&invalid, "version: 1\nname: [", NULL, &error) != BATON_INVALID || invalid != NULL) return 3;
  if (strstr(baton_error_mistakes(error), "\"line\":") == NULL) return 4;
  baton_error_free(error);

  baton_engine* engine = NULL;
  if (baton_engine_open(&engine, NULL, NULL) != BATON_OK) return 5;
  const baton_pair inputs[] = {{"question", "Why?"}};
  baton_run_options options;
  baton_run_options_init(&options, sizeof options);
  options.inputs = inputs;
  options.input_count = 1;
  baton_run* run = NULL;
  if (baton_engine_start(&run, engine, workflow, &options, NULL) != BATON_OK) return 6;
  baton_engine_free(engine);
  baton_workflow_free(workflow);
  const baton_status status = baton_run_wait(run, -1, &error);
  printf("%s: %s\n", baton_status_name(status), baton_error_message(error));
  baton_error_free(error);
  baton_run_free(run);
  return status == BATON_RESOURCES ? 0 : 7;
}
