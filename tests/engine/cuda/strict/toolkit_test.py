# SPDX-License-Identifier: Apache-2.0
"""The declarations of the strict CUDA runtime against those of an installed toolkit.

    python3 tests/engine/cuda/strict/toolkit_test.py CXX [INCLUDE]

- Every number (error, attribute, flag) equals the toolkit's.
- Every entry point has the toolkit's parameters: a program that takes the address of each, with the type that the strict
  headers give it, compiles against the real headers.
- The errors that an entry point of the strict runtime may return are those of the toolkit's documentation.

Without a toolkit the test prints SKIPPED and the reason.
"""
import pathlib
import re
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve()
STRICT = HERE.parents[3] / "support/strict"
# The documentation uses names that the headers do not declare.
DOCUMENTED_AS = {"cudaErrorMemoryAllocation": "cudaErrorOutOfMemory",
                 "cudaErrorDevicesUnavailable": "cudaErrorDeviceUnavailable"}
NOT_INJECTED = {"cudaErrorNotReady"}  # no failure of a query


def toolkit():
    given = [pathlib.Path(sys.argv[2])] if len(sys.argv) > 2 else []
    for folder in given + [pathlib.Path("/usr/local/cuda/include"), pathlib.Path("/usr/include")]:
        if (folder / "cuda_runtime_api.h").is_file() and (folder / "cublasLt.h").is_file():
            return folder
    return None


def compile_text(compiler, text, *folders):
    with tempfile.TemporaryDirectory() as temporary:
        source = pathlib.Path(temporary) / "check.cpp"
        source.write_text(text)
        command = [compiler, "-std=c++20", "-fsyntax-only", *(f"-I{folder}" for folder in folders), str(source)]
        done = subprocess.run(command, capture_output=True, text=True)
        return done.stderr if done.returncode else ""


def numbers(header):
    """Names and values of enumerators and of macros with a number."""
    found = dict(re.findall(r"^\s*(\w+) = (\d+),?$", header, re.M))
    found.update(re.findall(r"^#define (\w+) (0x\w+)$", header, re.M))
    found.update(re.findall(r"(\w+) = (\d+)[,}\s]", header))
    return {name: value for name, value in found.items() if name != "flags"}


def functions(header):
    """Names and parameter lists of the entry points."""
    inside = "".join(re.findall(r'extern "C" \{(.*?)^\}', header, re.S | re.M))
    plain = re.sub(r"const char\* (cu\w+\()", r"const_text \1", re.sub(r"\s+", " ", inside))
    return re.findall(r"([\w*]+(?: ?\*)?) (\w+)\(([^)]*)\);", plain)


def documented(name, header):
    """The errors that the documentation of an entry point lists."""
    match = re.search(r"(/\*\*(?:(?!\*/).)*\*/)\s*(?:#[^\n]*\n\s*)*extern [^;]*?\b" + name + r"\(", header, re.S)
    listed = re.search(r"\\returns?\b(.*?)\\(?:note|sa|ref)", match.group(1), re.S) if match else None
    return set(re.findall(r"cudaError\w+", listed.group(1))) if listed else set()


def main():
    include = toolkit()
    if include is None:
        print("SKIPPED: no CUDA toolkit is installed")
        return 0
    failures = []
    headers = {name: (STRICT / "toolkit" / name).read_text() for name in ("cuda_runtime_api.h", "cublasLt.h")}
    checks = "#include <cstdint>\n#include <cuda_runtime_api.h>\n#include <cublasLt.h>\n"
    for header in headers.values():
        for name, value in numbers(header).items():
            checks += f"static_assert(static_cast<long>({name}) == {value}, \"{name}\");\n"
        for result, name, parameters in functions(header):
            plain = re.sub(r" = \w+", "", parameters)
            types = ", ".join(re.sub(r"[ ]?\b\w+$", "", one.strip()) for one in plain.split(",")) if plain else ""
            result = result.replace("const_text", "const char*")
            checks += f"{result} (*check_{name})({types}) = &{name};\n"
    for wrong in re.findall(r"error: (.*)", compile_text(sys.argv[1], checks, include)):
        failures.append(f"the toolkit's headers: {wrong}")
    real = (include / "cuda_runtime_api.h").read_text()
    for source in STRICT.glob("api_*.cpp"):
        text = source.read_text()
        for name, listed in re.findall(r'(?:called|released)\(\s*"(cuda\w+)",\s*Call::\w+,\s*\{([^}]*)\}', text):
            allowed = documented(name, real)
            for error in re.findall(r"cudaError\w+", listed):
                if allowed and error not in allowed and DOCUMENTED_AS.get(error) not in allowed:
                    failures.append(f"{name}: its documentation does not list {error}")
            missing = allowed - set(re.findall(r"cudaError\w+", listed)) - NOT_INJECTED - set(DOCUMENTED_AS.values())
            if name != "cudaLaunchKernel" and missing:
                failures.append(f"{name}: its documentation also lists {', '.join(sorted(missing))}")
    count = sum(len(functions(header)) for header in headers.values())
    print("\n".join(failures) if failures else f"{count} entry points are as the toolkit declares them ({include})")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
