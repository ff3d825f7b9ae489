#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the programs that people write with openai, anthropic, LangGraph and CrewAI against `baton serve --model FILE`.

    python tests/published/serve_clients.py --baton build/release/bin/baton --model FILE.gguf [--times 20] [--only NAME]

The packages (openai, anthropic, langgraph with langchain-openai, crewai) are those of the Python that runs the script;
what is missing is skipped and said. Nothing of them is patched, and their telemetry is off. Each program must end as
its comment says, every time. Exit code 1: one did not.
"""

import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
import threading
import time
import traceback

for name in ("CREWAI_DISABLE_TELEMETRY", "OTEL_SDK_DISABLED", "CREWAI_DISABLE_TRACKING"):
    os.environ[name] = "true"
os.environ["CREWAI_TRACING_ENABLED"] = "false"
os.environ["LANGCHAIN_TRACING_V2"] = "false"

WEATHER = {
    "type": "object",
    "properties": {"city": {"type": "string", "description": "Name of the city"},
                   "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]}},
    "required": ["city", "unit"],
    "additionalProperties": False,
}
TOOL = {"type": "function", "function": {"name": "get_weather", "description": "The weather of a city.", "parameters": WEATHER}}
QUESTION = [{"role": "user", "content": "What is the weather in Paris, in celsius? Then say what to wear."}]


def check(holds, what):
    if not holds:
        raise AssertionError(what)


def openai_chat(url, model):
    """A conversation whole and as a stream, which are the same text; usage; models; an error with its field."""
    import openai
    client = openai.OpenAI(base_url=url + "/v1", api_key="not-needed")
    ask = {"model": model, "max_tokens": 40, "temperature": 0, "messages": [
        {"role": "system", "content": "You are brief."}, {"role": "user", "content": "Name three colours."}]}
    whole = client.chat.completions.create(**ask)
    check(whole.choices[0].message.content, "no text")
    check(whole.usage.total_tokens == whole.usage.prompt_tokens + whole.usage.completion_tokens, "usage does not add up")
    pieces, usage = "", None
    for chunk in client.chat.completions.create(**ask, stream=True, stream_options={"include_usage": True}):
        usage = chunk.usage or usage
        for choice in chunk.choices:
            pieces += choice.delta.content or ""
    check(pieces == whole.choices[0].message.content, "the stream differs")
    check(usage.completion_tokens == whole.usage.completion_tokens, "the stream's usage differs")
    several = client.chat.completions.create(**{**ask, "temperature": 1.0, "n": 2, "seed": 3, "logprobs": True, "top_logprobs": 2})
    check(len(several.choices) == 2 and len(several.choices[0].logprobs.content[0].top_logprobs) == 2, "n or logprobs")
    check(model in [one.id for one in client.models.list()], "the model is not listed")
    try:
        client.chat.completions.create(**ask, logit_bias={"1": 2})
    except openai.BadRequestError as error:
        check(error.param == "logit_bias", "the error names no field")
    else:
        raise AssertionError("logit_bias is taken")


def openai_tools(url, model):
    """The forced tool is called with arguments of its schema, its result is read, and a text follows."""
    import openai
    client = openai.OpenAI(base_url=url + "/v1", api_key="not-needed")
    messages = list(QUESTION)
    first = client.chat.completions.create(model=model, messages=messages, tools=[TOOL], max_tokens=200, temperature=0.7,
                                           tool_choice={"type": "function", "function": {"name": "get_weather"}})
    call = first.choices[0].message.tool_calls[0]
    check(first.choices[0].finish_reason == "tool_calls", "the reason")
    arguments = json.loads(call.function.arguments)
    check(call.function.name == "get_weather" and set(arguments) == {"city", "unit"}, f"arguments {arguments}")
    messages += [first.choices[0].message, {"role": "tool", "tool_call_id": call.id, "content": "18 degrees, light rain"}]
    last = client.chat.completions.create(model=model, messages=messages, tools=[TOOL], tool_choice="none", max_tokens=120)
    check(last.choices[0].message.content, "no text behind the result")
    streamed = {}
    for chunk in client.chat.completions.create(model=model, messages=QUESTION, tools=[TOOL], tool_choice="required", stream=True):
        for choice in chunk.choices:
            for delta in choice.delta.tool_calls or []:
                one = streamed.setdefault(delta.index, ["", ""])
                one[0] += delta.function.name or ""
                one[1] += delta.function.arguments or ""
    check(streamed and all(name == "get_weather" and json.loads(text) for name, text in streamed.values()), "streamed calls")


def openai_structured(url, model):
    """Answers of a Pydantic class, by the package's own parse()."""
    import openai
    import pydantic

    class Step(pydantic.BaseModel):
        explanation: str = pydantic.Field(max_length=120)
        result: int

    class Solution(pydantic.BaseModel):
        steps: list[Step] = pydantic.Field(max_length=3)
        answer: int

    client = openai.OpenAI(base_url=url + "/v1", api_key="not-needed")
    parsed = client.chat.completions.parse(
        model=model, max_tokens=600, messages=[{"role": "user", "content": "Solve 7 * 6 + 3 step by step."}], response_format=Solution)
    check(isinstance(parsed.choices[0].message.parsed, Solution), "no parsed answer")


def openai_responses(url, model):
    """The Responses API: text, a stream, and a call of a tool whose output goes back."""
    import openai
    client = openai.OpenAI(base_url=url + "/v1", api_key="not-needed")
    whole = client.responses.create(model=model, instructions="You are brief.", input="Name three colours.", max_output_tokens=40)
    check(whole.output_text and whole.status in ("completed", "incomplete"), "no text")
    pieces, final = "", None
    with client.responses.stream(model=model, instructions="You are brief.", input="Name three colours.", max_output_tokens=40) as stream:
        for event in stream:
            if event.type == "response.output_text.delta":
                pieces += event.delta
            if event.type in ("response.completed", "response.incomplete"):
                final = event.response
    check(pieces == whole.output_text and final.output_text == pieces, "the stream differs")
    tool = {"type": "function", "name": "get_weather", "description": "The weather of a city.", "parameters": WEATHER, "strict": True}
    asked = [{"role": "user", "content": QUESTION[0]["content"]}]
    first = client.responses.create(model=model, input=asked, tools=[tool], tool_choice="required", max_output_tokens=200)
    call = next(item for item in first.output if item.type == "function_call")
    check(set(json.loads(call.arguments)) == {"city", "unit"}, "arguments")
    asked += [call.model_dump(exclude_none=True),
              {"type": "function_call_output", "call_id": call.call_id, "output": "18 degrees, light rain"}]
    last = client.responses.create(model=model, input=asked, tools=[tool], tool_choice="none", max_output_tokens=120)
    check(last.output_text, "no text behind the result")


def anthropic_messages(url, model):
    """Messages, whole and streamed, and the loop of a tool."""
    import anthropic
    client = anthropic.Anthropic(base_url=url, api_key="not-needed")
    ask = {"model": model, "max_tokens": 40, "system": "You are brief.", "messages": [{"role": "user", "content": "Name three colours."}]}
    whole = client.messages.create(**ask)
    check(whole.content[0].text and whole.usage.output_tokens > 0, "no text")
    with client.messages.stream(**ask) as stream:
        text = "".join(stream.text_stream)
        check(text == whole.content[0].text, "the stream differs")
        check(stream.get_final_message().stop_reason == whole.stop_reason, "the stream's reason differs")
    tool = {"name": "get_weather", "description": "The weather of a city.", "input_schema": WEATHER}
    messages = list(QUESTION)
    first = client.messages.create(model=model, max_tokens=200, messages=messages, tools=[tool], tool_choice={"type": "tool", "name": "get_weather"})
    call = next(block for block in first.content if block.type == "tool_use")
    check(first.stop_reason == "tool_use" and set(call.input) == {"city", "unit"}, "the call")
    messages += [{"role": "assistant", "content": first.content},
                 {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call.id, "content": "18 degrees, light rain"}]}]
    last = client.messages.create(model=model, max_tokens=120, messages=messages, tools=[tool], tool_choice={"type": "none"})
    check(any(block.type == "text" and block.text for block in last.content), "no text behind the result")


def langgraph_team(url, model):
    """Three agents in a graph: a planner, a caller of tools with a tool node, and a writer."""
    from langchain_core.messages import HumanMessage, SystemMessage
    from langchain_core.tools import tool
    from langchain_openai import ChatOpenAI
    from langgraph.graph import END, START, MessagesState, StateGraph
    from langgraph.prebuilt import ToolNode

    @tool
    def get_weather(city: str) -> str:
        """The weather of a city."""
        return f"In {city} it is 18 degrees with light rain."

    llm = ChatOpenAI(base_url=url + "/v1", api_key="not-needed", model=model, temperature=0, max_tokens=120)
    caller = llm.bind_tools([get_weather], tool_choice="get_weather")

    def plan(state):
        return {"messages": [llm.invoke([SystemMessage("Plan in one sentence."), *state["messages"]])]}

    def call(state):
        return {"messages": [caller.invoke([SystemMessage("Look the weather up."), state["messages"][0]])]}

    def write(state):
        return {"messages": [llm.invoke([*state["messages"], HumanMessage("Now say what to wear, in one sentence.")])]}

    graph = StateGraph(MessagesState)
    for name, node in (("plan", plan), ("call", call), ("tools", ToolNode([get_weather])), ("write", write)):
        graph.add_node(name, node)
    for edge in ((START, "plan"), ("plan", "call"), ("call", "tools"), ("tools", "write"), ("write", END)):
        graph.add_edge(*edge)
    messages = graph.compile().invoke({"messages": [HumanMessage("What should I wear in Paris today?")]})["messages"]
    check(any(message.type == "tool" and "18 degrees" in message.content for message in messages), "the tool did not run")
    check(messages[-1].type == "ai" and messages[-1].content, "no text at the end")


def crewai_crew(url, model):
    """A sequential crew of a researcher and a writer."""
    from crewai import LLM, Agent, Crew, Process, Task
    llm = LLM(model="openai/" + model, base_url=url + "/v1", api_key="not-needed", temperature=0, max_tokens=160)
    researcher = Agent(role="Researcher", goal="Find facts about rivers.", backstory="You know geography.", llm=llm, verbose=False)
    writer = Agent(role="Writer", goal="Write one sentence.", backstory="You write plainly.", llm=llm, verbose=False)
    facts = Task(description="List two facts about the Seine.", expected_output="Two facts.", agent=researcher)
    text = Task(description="Write a sentence from the facts.", expected_output="One sentence.", agent=writer, context=[facts])
    result = Crew(agents=[researcher, writer], tasks=[facts, text], process=Process.sequential, verbose=False).kickoff()
    check(str(result).strip(), "no text at the end")


PROGRAMS = (openai_chat, openai_tools, openai_structured, openai_responses, anthropic_messages, langgraph_team, crewai_crew)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--baton", type=pathlib.Path, required=True)
    parser.add_argument("--model", type=pathlib.Path, required=True)
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("--only", default="", help="a part of a program's name")
    options = parser.parse_args()
    server = subprocess.Popen([options.baton, "serve", "--model", options.model, "--port", "0"], stderr=subprocess.PIPE, text=True)
    try:
        url = next(found[0] for found in (re.search(r"http://\S+", line) for line in server.stderr) if found)
        threading.Thread(target=lambda: [None for _ in server.stderr], daemon=True).start()
        failed = False
        for program in PROGRAMS:
            if options.only not in program.__name__:
                continue
            right, begin, why = 0, time.monotonic(), ""
            try:
                for _ in range(options.times):
                    program(url, options.model.stem)
                    right += 1
            except ImportError as missing:
                print(f"{program.__name__:20} skipped: {missing}")
                continue
            except Exception:  # the table says which
                why = traceback.format_exc().strip()
            failed = failed or right < options.times
            print(f"{program.__name__:20} {right} of {options.times}  {(time.monotonic() - begin) / max(1, right):6.1f} s each"
                  + (f"\n{why}" if why else ""), flush=True)
    finally:
        server.terminate()
        server.wait(60)
    sys.exit(failed)


if __name__ == "__main__":
    main()
