// SPDX-License-Identifier: Apache-2.0
#include "tests/exhaustion/faults.h"

#include <dlfcn.h>
#include <pthread.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <new>

namespace baton::test {
namespace {

struct Counter {
  std::atomic<bool> armed = false;
  std::atomic<std::int64_t> calls = 0;
  std::atomic<std::int64_t> first = 0, last = 0;  // the calls that fail

  bool fails() {
    if (!armed.load(std::memory_order_relaxed)) return false;
    const std::int64_t call = ++calls;
    return call >= first && call <= last;
  }
};

Counter allocations, threads;

void* allocate(std::size_t bytes, std::size_t alignment) {
  if (allocations.fails()) return nullptr;
  if (bytes == 0) bytes = 1;
  return alignment == 0 ? std::malloc(bytes)
                        : std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
}

void* allocate_or_throw(std::size_t bytes, std::size_t alignment = 0) {
  void* data = allocate(bytes, alignment);
  if (data == nullptr) throw std::bad_alloc();
  return data;
}

}  // namespace

void arm(Fault fault, std::int64_t point, std::int64_t count) {
  Counter& counter = fault == Fault::allocation ? allocations : threads;
  counter.calls = 0;
  counter.first = point;
  counter.last = point + count - 1;
  counter.armed = true;
}

std::int64_t disarm() {
  std::int64_t injected = 0;
  for (Counter* counter : {&allocations, &threads}) {
    if (!counter->armed.exchange(false)) continue;
    const std::int64_t calls = counter->calls, first = counter->first, last = counter->last;
    if (calls >= first) injected += (calls < last ? calls : last) - first + 1;
  }
  return injected;
}

}  // namespace baton::test

using baton::test::allocate;
using baton::test::allocate_or_throw;

void* operator new(std::size_t bytes) { return allocate_or_throw(bytes); }
void* operator new[](std::size_t bytes) { return allocate_or_throw(bytes); }
void* operator new(std::size_t bytes, std::align_val_t to) {
  return allocate_or_throw(bytes, static_cast<std::size_t>(to));
}
void* operator new[](std::size_t bytes, std::align_val_t to) {
  return allocate_or_throw(bytes, static_cast<std::size_t>(to));
}
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept { return allocate(bytes, 0); }
void* operator new[](std::size_t bytes, const std::nothrow_t&) noexcept { return allocate(bytes, 0); }
void* operator new(std::size_t bytes, std::align_val_t to, const std::nothrow_t&) noexcept {
  return allocate(bytes, static_cast<std::size_t>(to));
}
void* operator new[](std::size_t bytes, std::align_val_t to, const std::nothrow_t&) noexcept {
  return allocate(bytes, static_cast<std::size_t>(to));
}
void operator delete(void* data) noexcept { std::free(data); }
void operator delete[](void* data) noexcept { std::free(data); }
void operator delete(void* data, std::size_t) noexcept { std::free(data); }
void operator delete[](void* data, std::size_t) noexcept { std::free(data); }
void operator delete(void* data, std::align_val_t) noexcept { std::free(data); }
void operator delete[](void* data, std::align_val_t) noexcept { std::free(data); }
void operator delete(void* data, std::size_t, std::align_val_t) noexcept { std::free(data); }
void operator delete[](void* data, std::size_t, std::align_val_t) noexcept { std::free(data); }

extern "C" int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*run)(void*),
                              void* argument) noexcept {
  using Create = int (*)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
  static const auto create = reinterpret_cast<Create>(dlsym(RTLD_NEXT, "pthread_create"));
  if (baton::test::threads.fails()) return EAGAIN;
  return create(thread, attributes, run, argument);
}
