# SPDX-License-Identifier: Apache-2.0
"""The C interface (baton/c.h) by ctypes: the functions that the package calls, and their errors as exceptions."""

import ctypes
import json
import os
import pathlib
from ctypes import POINTER, byref, c_bool, c_char_p, c_double, c_int, c_int32, c_int64, c_size_t, c_uint64, c_void_p

NAME = "libbaton.so.0.1"

OK, TIMEOUT, STOPPED, END = 0, 5, 130, 201
FAILED, USAGE, INVALID, RESOURCES, SUSPENDED = 1, 2, 3, 4, 7


class Error(Exception):
    """What the library refused or could not do."""


class UsageError(Error):
    """An argument: an input that is missing or unknown, a text that is not UTF-8."""


class WorkflowError(Error):
    """A workflow that cannot be used. `mistakes` has a dictionary for each, with file, line, column, code and message."""

    mistakes: list = []


class ResourceError(Error):
    """Memory, a device or a model is not available."""


class RunFailed(Error):
    """A run that did not end as it should: an agent failed, the time was over, or it was stopped."""


class RunSuspended(RunFailed):
    """A run that waits for an answer of a person (`ask`)."""


ERRORS = {USAGE: UsageError, INVALID: WorkflowError, RESOURCES: ResourceError, SUSPENDED: RunSuspended}


class Pair(ctypes.Structure):
    _fields_ = [("name", c_char_p), ("value", c_char_p)]


class WorkflowOptions(ctypes.Structure):
    _fields_ = [("size", c_size_t), ("tools", c_void_p), ("set", POINTER(Pair)), ("set_count", c_size_t),
                ("name", c_char_p)]


class EngineOptions(ctypes.Structure):
    _fields_ = [("size", c_size_t), ("model", c_char_p), ("device", c_char_p), ("threads", c_int32),
                ("kv_budget_bytes", c_int64), ("slowdown", c_double), ("kv_dtype", c_char_p),
                ("learned_folder", c_char_p), ("on_load", c_void_p), ("on_profile", c_void_p), ("on_warning", c_void_p),
                ("user_data", c_void_p), ("no_drafts", c_int32), ("allow_servers", c_int64)]


class RunOptions(ctypes.Structure):
    _fields_ = [("size", c_size_t), ("inputs", POINTER(Pair)), ("input_count", c_size_t), ("seed", c_uint64),
                ("has_seed", c_bool), ("timeout_ms", c_int64), ("on_event", c_void_p), ("user_data", c_void_p),
                ("on_ask", c_void_p), ("answers", POINTER(Pair)), ("answer_count", c_size_t),
                ("on_end", c_void_p), ("record", c_char_p)]


TOOL = ctypes.CFUNCTYPE(c_bool, c_void_p, c_void_p)
WARNING = ctypes.CFUNCTYPE(None, c_char_p, c_void_p)

# Result and arguments of each function. char* that the caller frees are c_void_p: ctypes would drop the pointer.
SIGNATURES = {
    "baton_version": (c_char_p, []),
    "baton_error_status": (c_int, [c_void_p]),
    "baton_error_message": (c_char_p, [c_void_p]),
    "baton_error_mistakes": (c_char_p, [c_void_p]),
    "baton_error_free": (None, [c_void_p]),
    "baton_string_free": (None, [c_void_p]),
    "baton_tools_create": (c_int, [POINTER(c_void_p), c_void_p]),
    "baton_tools_add": (c_int, [c_void_p, c_char_p, TOOL, c_void_p, c_void_p]),
    "baton_tools_add_callable": (c_int, [c_void_p, c_char_p, c_char_p, c_char_p, TOOL, c_void_p, c_void_p]),
    "baton_tools_free": (None, [c_void_p]),
    "baton_tool_call_text": (c_char_p, [c_void_p, c_void_p]),
    "baton_tool_call_options": (c_char_p, [c_void_p]),
    "baton_tool_call_arguments": (c_char_p, [c_void_p]),
    "baton_tool_call_return": (c_int, [c_void_p, c_char_p, c_void_p]),
    "baton_workflow_load": (c_int, [POINTER(c_void_p), c_char_p, POINTER(WorkflowOptions), c_void_p]),
    "baton_workflow_parse": (c_int, [POINTER(c_void_p), c_char_p, POINTER(WorkflowOptions), c_void_p]),
    "baton_workflow_describe": (c_int, [POINTER(c_void_p), c_void_p, c_void_p]),
    "baton_workflow_graph": (c_int, [POINTER(c_void_p), c_void_p, c_char_p, c_void_p]),
    "baton_workflow_free": (None, [c_void_p]),
    "baton_engine_open": (c_int, [POINTER(c_void_p), POINTER(EngineOptions), c_void_p]),
    "baton_engine_prepare": (c_int, [c_void_p, c_void_p, c_void_p]),
    "baton_engine_start": (c_int, [POINTER(c_void_p), c_void_p, c_void_p, POINTER(RunOptions), c_void_p]),
    "baton_engine_free": (None, [c_void_p]),
    "baton_event_json": (c_char_p, [c_void_p]),
    "baton_event_free": (None, [c_void_p]),
    "baton_run_next": (c_int, [POINTER(c_void_p), c_void_p, c_int64, c_void_p]),
    "baton_run_wait": (c_int, [c_void_p, c_int64, c_void_p]),
    "baton_run_record": (c_int, [POINTER(c_void_p), c_void_p, c_void_p]),
    "baton_run_stop": (None, [c_void_p]),
    "baton_run_cancel": (None, [c_void_p]),
    "baton_run_free": (None, [c_void_p]),
}


def _load():
    """The library of BATON_LIBRARY, the one in this package, or the system's."""
    own = pathlib.Path(__file__).parent / "lib" / NAME
    library = ctypes.CDLL(os.environ.get("BATON_LIBRARY") or (str(own) if own.exists() else NAME))
    for name, (result, arguments) in SIGNATURES.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


library = _load()


def exception(status, error):
    """The exception for a status, with what `error` says; frees `error`."""
    raised = ERRORS.get(status, RunFailed if status in (FAILED, TIMEOUT, STOPPED) else Error)(
        library.baton_error_message(error).decode() or f"status {status}")
    if isinstance(raised, WorkflowError):
        raised.mistakes = json.loads(library.baton_error_mistakes(error))
    library.baton_error_free(error)
    return raised


def call(name, *arguments):
    """Calls a function whose last argument is the error; raises what it says."""
    error = c_void_p()
    status = getattr(library, name)(*arguments, byref(error))
    if status not in (OK, END):
        raise exception(status, error)
    library.baton_error_free(error)
    return status


def text(name, *arguments):
    """Calls a function that gives a text through its first argument."""
    result = c_void_p()
    call(name, byref(result), *arguments)
    try:
        return ctypes.string_at(result).decode()
    finally:
        library.baton_string_free(result)


def handle(name, *arguments):
    """Calls a function that gives a handle through its first argument."""
    result = c_void_p()
    call(name, byref(result), *arguments)
    return result


def encoded(value):
    return None if value is None else os.fsencode(value) if isinstance(value, os.PathLike) else str(value).encode()


def pairs(values):
    """Names and texts as an array of the C interface; the caller keeps it as long as the call lasts."""
    return (Pair * len(values))(*(Pair(encoded(name), encoded(value)) for name, value in values.items()))
