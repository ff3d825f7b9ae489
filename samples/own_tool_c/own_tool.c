// SPDX-License-Identifier: Apache-2.0
// A function of this program that an agent calls, from C: it knows the prices of a shop. A model calls such a function
// itself where it is added with baton_tools_add_callable (docs/c.md).
//
//   own_tool_c [MODEL]        a folder, a .gguf file or a name
#include <baton/c.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char* const kTeam =
    "version: 1\n"
    "name: own-tool\n"
    "inputs: {}\n"
    "models: {main: nano}\n"
    "defaults: {max_tokens: 300}\n"
    "agents:\n"
    "  shop: {tools: [{price_of: {item: books}}]}\n"
    "  analyst:\n"
    "    prompt:\n"
    "      system: >-\n"
    "        You are a mathematical analyst. You will be given a math problem and maybe answers of other agents.\n"
    "        Repeat the problem, name each quantity with a letter, then put in the numbers.\n"
    "        The last line is only the final result.\n"
    "      user: >-\n"
    "        Question:\n\n"
    "        Noah pays for 2 books at {{ agent_shop_current }} coins each with 75 coins.\n"
    "        How many coins does he get back from the shop?\n"
    "workflow: {topology: chain, agents: [shop, analyst]}\n"
    "outputs: {price: \"{{ agent_shop_current }}\", answer: \"{{ agent_analyst_current }}\"}\n";

struct price {
  const char* item;
  const char* coins;
};

// Called on threads of the library, with a table that outlives the run. A failed call (false) ends no run.
static bool price_of(baton_tool_call* call, void* user_data) {
  const char* item = baton_tool_call_option(call, "item");
  for (const struct price* price = user_data; item != NULL && price->item != NULL; ++price) {
    if (strcmp(price->item, item) == 0) return baton_tool_call_return(call, price->coins, NULL) == BATON_OK;
  }
  baton_tool_call_return(call, "the shop does not sell that", NULL);
  return false;
}

static baton_status ask(const char* model, baton_error** error) {
  static struct price prices[] = {{"books", "7"}, {"pens", "3"}, {"plums", "2"}, {NULL, NULL}};
  baton_tools* tools = NULL;
  baton_engine* engine = NULL;
  baton_workflow* workflow = NULL;
  baton_run* run = NULL;
  char* price = NULL;
  char* answer = NULL;

  baton_status status = baton_tools_create(&tools, error);
  if (status == BATON_OK) status = baton_tools_add(tools, "price_of", price_of, prices, error);

  baton_engine_options engine_options;
  baton_engine_options_init(&engine_options, sizeof engine_options);
  engine_options.model = model;
  baton_workflow_options workflow_options;
  baton_workflow_options_init(&workflow_options, sizeof workflow_options);
  workflow_options.tools = tools;

  if (status == BATON_OK) status = baton_engine_open(&engine, &engine_options, error);
  if (status == BATON_OK) status = baton_workflow_parse(&workflow, kTeam, &workflow_options, error);
  if (status == BATON_OK) status = baton_engine_start(&run, engine, workflow, NULL, error);
  if (status == BATON_OK) status = baton_run_wait(run, -1, error);
  if (status == BATON_OK) status = baton_run_output(&price, NULL, run, "price", error);
  if (status == BATON_OK) status = baton_run_output(&answer, NULL, run, "answer", error);
  if (status == BATON_OK) printf("shop: %s\n%s\n", price, answer);

  baton_string_free(answer);
  baton_string_free(price);
  baton_run_free(run);
  baton_workflow_free(workflow);
  baton_engine_free(engine);
  baton_tools_free(tools);
  return status;
}

int main(int argc, char** argv) {
  baton_error* error = NULL;
  const baton_status status = ask(argc > 1 ? argv[1] : NULL, &error);
  if (status != BATON_OK) fprintf(stderr, "%s: %s\n", baton_status_name(status), baton_error_message(error));
  baton_error_free(error);
  return status == BATON_OK ? EXIT_SUCCESS : EXIT_FAILURE;
}
