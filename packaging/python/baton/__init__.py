# SPDX-License-Identifier: Apache-2.0
"""Baton: teams of language model agents, described in YAML, run in this process.

    import baton

    workflow = baton.Workflow.load("math_team")
    run = baton.Engine().start(workflow, {"user_question": "What is 6 x 7?"})
    for event in run:
        if isinstance(event, baton.Token):
            print(event.text, end="", flush=True)
    print(run.outputs()["answer"])
"""

import ctypes
import json

from . import _library
from ._library import Error, ResourceError, RunFailed, RunSuspended, UsageError, WorkflowError
from .events import (AgentFinished, AgentStarted, Asked, Confirmed, Event, Prefill, PrefillProgress, Relayed,
                     RunFinished, RunStarted, TentativeToken, Token, ToolCalled, Warning, event_of)

__version__ = _library.library.baton_version().decode()


class _Handle:
    """Owns a handle of the library."""

    _free = ""

    def __init__(self, pointer):
        self._pointer = pointer

    def __del__(self):
        pointer, self._pointer = getattr(self, "_pointer", None), None
        if pointer:
            getattr(_library.library, self._free)(pointer)


class ToolCall:
    """A call of a tool, valid until the function returns."""

    def __init__(self, pointer):
        library = _library.library
        self.text = library.baton_tool_call_text(pointer, None).decode()
        self.options = json.loads(library.baton_tool_call_options(pointer))
        arguments = library.baton_tool_call_arguments(pointer).decode()
        self.arguments = json.loads(arguments) if arguments else None  # of a call by a model, in the tool's schema


class Tools(_Handle):
    """The host's own functions, which a workflow calls by name, or its models."""

    _free = "baton_tools_free"

    def __init__(self):
        super().__init__(_library.handle("baton_tools_create"))
        self._callbacks = []

    def add(self, name, function, description=None, parameters=None):
        """Adds `function(call) -> str`. With `parameters`, a JSON Schema as a dictionary, models can call it. What it
        raises is the text of a failed call."""

        def callback(pointer, _):
            try:
                ok, text = True, str(function(ToolCall(pointer)))
            except Exception as error:  # the library takes no exceptions
                ok, text = False, f"{type(error).__name__}: {error}"
            _library.library.baton_tool_call_return(pointer, text.encode(errors="replace"), None)
            return ok

        entry = _library.TOOL(callback)
        if parameters is None:
            _library.call("baton_tools_add", self._pointer, _library.encoded(name), entry, None)
        else:
            _library.call("baton_tools_add_callable", self._pointer, _library.encoded(name),
                          _library.encoded(description), json.dumps(parameters).encode(), entry, None)
        self._callbacks.append(entry)
        return self


class Workflow(_Handle):
    """A checked workflow; immutable."""

    _free = "baton_workflow_free"

    def __init__(self, function, text, tools, settings, name):
        settings = _library.pairs(settings or {})
        options = _library.WorkflowOptions(size=ctypes.sizeof(_library.WorkflowOptions), set=settings,
                                           set_count=len(settings), tools=tools._pointer if tools else None,
                                           name=_library.encoded(name))
        super().__init__(_library.handle(function, _library.encoded(text), ctypes.byref(options)))
        self._tools = tools  # its functions are called by runs

    @classmethod
    def load(cls, file, tools=None, settings=None):
        """Reads a file, or a workflow that ships with Baton by its bare name. `settings` replace the file's:
        {"relay.method": "full"}."""
        return cls("baton_workflow_load", file, tools, settings, None)

    @classmethod
    def parse(cls, yaml, tools=None, settings=None, name=None):
        """The same from text; `name` stands for the file in errors."""
        return cls("baton_workflow_parse", yaml, tools, settings, name)

    def describe(self):
        """Name, inputs, agents and outputs, as a dictionary."""
        return json.loads(_library.text("baton_workflow_describe", self._pointer))

    def graph(self, format="ascii"):
        """The graph as "ascii", "mermaid", "dot" or "json"."""
        return _library.text("baton_workflow_graph", self._pointer, _library.encoded(format))


class Run(_Handle):
    """One run: a range of its events, then its record. Dropping it cancels it."""

    _free = "baton_run_free"

    def __init__(self, pointer, workflow):
        super().__init__(pointer)
        self._workflow = workflow

    def __iter__(self):
        return self

    def __next__(self):
        """Waits for the next event."""
        pointer = ctypes.c_void_p()
        if _library.call("baton_run_next", ctypes.byref(pointer), self._pointer, -1) == _library.END:
            raise StopIteration
        try:
            return event_of(_library.library.baton_event_json(pointer))
        finally:
            _library.library.baton_event_free(pointer)

    def wait(self):
        """Waits for the end. Raises RunFailed, RunSuspended or ResourceError when the run did not end well."""
        _library.call("baton_run_wait", self._pointer, -1)

    def record(self):
        """Waits for the end. The record as `baton run --json` prints it, whatever became of the run."""
        return json.loads(_library.text("baton_run_record", self._pointer))

    def record_error(self):
        """Waits for the end. Why the folder of the record could not be written, or an empty text."""
        return _library.text("baton_run_record_error", self._pointer)

    def outputs(self):
        """Waits for a good end. The workflow's outputs, by name."""
        self.wait()
        return self.record()["outputs"]

    def stop(self):
        """Ends the run soon; its record keeps what the agents wrote."""
        _library.library.baton_run_stop(self._pointer)

    def cancel(self):
        """Ends the run soon and drops its texts."""
        _library.library.baton_run_cancel(self._pointer)


class Engine(_Handle):
    """Holds models on their device, each opened once. Safe from any thread."""

    _free = "baton_engine_free"

    def __init__(self, model=None, device=None, threads=0, kv_budget_bytes=0, allow_servers=False):
        options = _library.EngineOptions(size=ctypes.sizeof(_library.EngineOptions), model=_library.encoded(model),
                                         device=_library.encoded(device), threads=threads,
                                         kv_budget_bytes=kv_budget_bytes, allow_servers=int(allow_servers))
        super().__init__(_library.handle("baton_engine_open", ctypes.byref(options)))

    def prepare(self, workflow):
        """Opens the models that a workflow needs, so that its first run does not wait."""
        _library.call("baton_engine_prepare", self._pointer, workflow._pointer)

    def start(self, workflow, inputs=None, seed=None, timeout_ms=0, answers=None, record=None):
        """Starts a run and returns at once. `answers`: to steps that ask, by turn. `record`: a new folder for the record
        that `baton run --record` writes; Run.record_error() says why it could not be written."""
        inputs, answers = _library.pairs(inputs or {}), _library.pairs(answers or {})
        options = _library.RunOptions(size=ctypes.sizeof(_library.RunOptions), inputs=inputs, input_count=len(inputs),
                                      seed=seed or 0, has_seed=seed is not None, timeout_ms=timeout_ms,
                                      answers=answers, answer_count=len(answers),
                                      record=_library.encoded(record))
        return Run(_library.handle("baton_engine_start", self._pointer, workflow._pointer, ctypes.byref(options)),
                   workflow)

    def run(self, workflow, inputs=None, **options):
        """Runs a workflow to its end and returns its outputs."""
        return self.start(workflow, inputs, **options).outputs()
