#!/usr/bin/env python3
"""Writes a C++ file that defines the functions an archive needs of a shared library, and loads the library when one of
them is first called. So a program starts where the library is missing; the functions then return status 1 (of cuBLAS:
not initialized), and those named *String say what is missing. For x86-64."""

import argparse
import subprocess

HEAD = """// Made by cmake/static/lazy_library.py.
#include <dlfcn.h>

#include <string>

namespace {

struct Function { const char* name; const char* library; };
const Function kFunctions[] = {
%(functions)s};

int missing() { return 1; }
const char* message() { return "the library could not be loaded: %(libraries)s"; }

}  // namespace

extern "C" {
__attribute__((visibility("hidden"))) void* baton_lazy_table[%(count)d] = {};

__attribute__((visibility("hidden"), used)) void* baton_lazy_resolve(long index) {
  const Function& function = kFunctions[index];
  void* library = dlopen(function.library, RTLD_NOW | RTLD_GLOBAL);
  if (library == nullptr)
    library = dlopen((std::string("/usr/local/cuda/lib64/") + function.library).c_str(), RTLD_NOW | RTLD_GLOBAL);
  void* found = library == nullptr ? nullptr : dlsym(library, function.name);
  if (found == nullptr) {
    const std::string name = function.name;
    const bool text = name.size() > 6 && name.compare(name.size() - 6, 6, "String") == 0;
    found = text ? reinterpret_cast<void*>(&message) : reinterpret_cast<void*>(&missing);
  }
  __atomic_store_n(&baton_lazy_table[index], found, __ATOMIC_RELEASE);
  return found;
}
}

// r11 holds the function's index; the arguments' registers are kept.
asm(R"(
.text
.type baton_lazy_first_call,@function
baton_lazy_first_call:
  push %%rdi
  push %%rsi
  push %%rdx
  push %%rcx
  push %%r8
  push %%r9
  push %%r11
  sub $128, %%rsp
  movups %%xmm0, (%%rsp)
  movups %%xmm1, 16(%%rsp)
  movups %%xmm2, 32(%%rsp)
  movups %%xmm3, 48(%%rsp)
  movups %%xmm4, 64(%%rsp)
  movups %%xmm5, 80(%%rsp)
  movups %%xmm6, 96(%%rsp)
  movups %%xmm7, 112(%%rsp)
  mov %%r11, %%rdi
  call baton_lazy_resolve
  movups (%%rsp), %%xmm0
  movups 16(%%rsp), %%xmm1
  movups 32(%%rsp), %%xmm2
  movups 48(%%rsp), %%xmm3
  movups 64(%%rsp), %%xmm4
  movups 80(%%rsp), %%xmm5
  movups 96(%%rsp), %%xmm6
  movups 112(%%rsp), %%xmm7
  add $128, %%rsp
  pop %%r11
  pop %%r9
  pop %%r8
  pop %%rcx
  pop %%rdx
  pop %%rsi
  pop %%rdi
  jmp *%%rax
)");
"""

FUNCTION = """
asm(R"(
.globl {name}
.type {name},@function
{name}:
  mov baton_lazy_table+{offset}(%rip), %r11
  test %r11, %r11
  je 1f
  jmp *%r11
1:
  movl ${index}, %r11d
  jmp baton_lazy_first_call
)");
"""


def needed(nm: str, archive: str, prefixes) -> list[str]:
    lines = subprocess.run([nm, "--undefined-only", archive], capture_output=True, text=True, check=True).stdout.splitlines()
    names = {line.split()[-1] for line in lines if line.strip().startswith("U ")}
    return sorted(name for name in names if name.startswith(tuple(prefixes)))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("out")
    parser.add_argument("--nm", default="nm")
    parser.add_argument("--archive", required=True)
    parser.add_argument("--library", action="append", required=True, help="PREFIX=SONAME; the longest prefix counts")
    options = parser.parse_args()
    libraries = dict(text.split("=", 1) for text in options.library)
    names = needed(options.nm, options.archive, libraries)
    home = {name: libraries[max((p for p in libraries if name.startswith(p)), key=len)] for name in names}
    functions = "".join(f'    {{"{name}", "{home[name]}"}},\n' for name in names) or "    {nullptr, nullptr}\n"
    with open(options.out, "w", encoding="utf-8") as out:
        out.write(HEAD % {"functions": functions, "count": max(1, len(names)), "libraries": ", ".join(libraries.values())})
        for index, name in enumerate(names):
            out.write(FUNCTION.format(name=name, offset=8 * index, index=index))


if __name__ == "__main__":
    main()
