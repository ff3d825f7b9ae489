#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A function of this program that agents call: it knows the prices of a shop. With the shipped model the workflow calls
it, before a prompt is built; a model that is named by an argument calls it itself.

    own_tool.py [MODEL]        a folder, a .gguf file, a name or hf:ORG/NAME
"""

import sys

import baton

WORKFLOW_CALLS = """
  shop: {tools: [{price_of: {item: books}}]}"""

MODEL_CALLS = """
  shop:
    prompt: {system: You answer questions by calling the tool that fits., user: "What is the price of books?"}
    tools: [{call: price_of}]
    calls: {direct: true}"""

TEAM = """
version: 1
name: own-tool
inputs: {}
models: {main: nano}
defaults: {max_tokens: 300}
agents:SHOP
  analyst:
    prompt:
      system: >-
        You are a mathematical analyst. You will be given a math problem and maybe answers of other agents.
        Repeat the problem, name each quantity with a letter, then put in the numbers.
        The last line is only the final result.
      user: >-
        Question:

        Noah pays for 2 books at {{ agent_shop_current }} coins each with 75 coins.
        How many coins does he get back from the shop?
workflow: {topology: chain, agents: [shop, analyst]}
outputs: {price: "{{ agent_shop_current }}", answer: "{{ agent_analyst_current }}"}
"""

PRICES = {"books": 7, "pens": 3, "plums": 2}


def price_of(call):
    """Called on threads of the library. What it raises is the result of a failed call, which ends no run."""
    return str(PRICES[(call.arguments or call.options)["item"]])


def main():
    model = sys.argv[1] if len(sys.argv) > 1 else None
    parameters = {"properties": {"item": {"enum": list(PRICES)}}, "required": ["item"], "additionalProperties": False}
    tools = baton.Tools().add("price_of", price_of, "The price in coins of one thing that the shop sells.", parameters)
    yaml = TEAM.replace("SHOP", MODEL_CALLS if model else WORKFLOW_CALLS)
    outputs = baton.Engine(model=model).run(baton.Workflow.parse(yaml, tools=tools))
    print(f"shop: {outputs['price']}\n{outputs['answer']}")


if __name__ == "__main__":
    try:
        main()
    except baton.Error as error:
        sys.exit(str(error))
