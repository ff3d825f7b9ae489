# SPDX-License-Identifier: Apache-2.0
# What tests of the SDK need beside Catch2: the runner as a process, the headers one by one, the install.
include(sdk/headers.cmake)

find_package(Python3 REQUIRED COMPONENTS Interpreter)
foreach(topic cli.Usage cli.Files cli.Run cli.Exhaustion cli.Interrupts cli.Terminal cli_measures.Learn cli_measures.Profile cli_measures.Eval cli_measures.Resume
    cli_measures.Bench cli_eval.Checks cli_eval.Paired cli_eval.Tables cli_pair.Pair cli_load.Load cli_report.Report cli_trace.Traces cli_chat.Chat cli_serve.Serve cli_resume.Resumed cli_ask.Asking
    cli_mcp.Servers cli_mcp.Permission cli_mcp.Addresses cli_mcp.ReferenceSdk cli_mcp_failures.ServerFailures
    cli_mcp_failures.ServerInterrupts
    cli_inspect.Explain cli_inspect.Plan cli_inspect.Errors cli_completion.Completion cli_shared.Shared cli_signals.Signals cli_full_disk.FullDisk cli_full_disk.Streams)
  if(BATON_SANITIZE AND topic STREQUAL "cli.Exhaustion")
    continue()  # a sanitizer reserves more address space than this test allows
  endif()
  if(BATON_SANITIZE STREQUAL thread AND topic STREQUAL "cli_full_disk.FullDisk")
    continue()  # ThreadSanitizer itself writes a file, so that a limit on the size of files ends the process
  endif()
  get_target_property(no_server baton_serve missing)
  if(no_server AND topic STREQUAL "cli_serve.Serve")
    continue()
  endif()
  string(REGEX MATCH "(.*)\\.(.*)" ignored ${topic})
  add_test(NAME "cli: ${CMAKE_MATCH_2}"
    COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_SOURCE_DIR}/sdk/${CMAKE_MATCH_1}_test.py $<TARGET_FILE:baton> ${CMAKE_MATCH_2})
  set_tests_properties("cli: ${CMAKE_MATCH_2}" PROPERTIES LABELS sdk TIMEOUT 600)
endforeach()
# Pages in a headless browser, where one is installed.
foreach(topic Reports ServePage)
  if(no_server AND topic STREQUAL "ServePage")
    continue()
  endif()
  add_test(NAME "pages: ${topic}" COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_SOURCE_DIR}/sdk/pages_test.py $<TARGET_FILE:baton> ${topic})
  set_tests_properties("pages: ${topic}" PROPERTIES LABELS sdk TIMEOUT 600 SKIP_RETURN_CODE 77)
endforeach()

# Downloads, from a hub that the test itself is.
get_target_property(missing baton_pull missing)
if(missing)
  add_test(NAME "pull: unavailable" COMMAND baton pull org/name)
  set_tests_properties("pull: unavailable" PROPERTIES LABELS sdk PASS_REGULAR_EXPRESSION "cannot download 'org/name'")
else()
  foreach(topic Folders Choice Transfer Access Secure Hostile Urls)
    add_test(NAME "pull: ${topic}" COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_SOURCE_DIR}/sdk/pull_test.py $<TARGET_FILE:baton> ${topic})
    set_tests_properties("pull: ${topic}" PROPERTIES LABELS sdk TIMEOUT 300)
  endforeach()
endif()

set(products $<TARGET_FILE:baton> $<TARGET_FILE:baton_library>)
if(TARGET baton_shared)
  list(APPEND products $<TARGET_FILE:baton_shared>)
endif()
add_test(NAME "laboratory: not in the product" COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_SOURCE_DIR}/sdk/laboratory_test.py
  $<TARGET_FILE:baton_lab_program> ${products})
set_tests_properties("laboratory: not in the product" PROPERTIES LABELS sdk)

add_test(NAME "headers: closure" COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_SOURCE_DIR}/sdk/header_closure_test.py
  ${PROJECT_SOURCE_DIR}/sdk/include ${PROJECT_SOURCE_DIR}/engine/base)
set_tests_properties("headers: closure" PROPERTIES LABELS sdk)

# Not under sanitizers: a consumer would need their flags.
if(NOT BATON_SANITIZE)
  foreach(way installed tree)
    add_test(NAME "consumer: ${way}" COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/consumer/run.sh ${PROJECT_BINARY_DIR} ${way})
    set_tests_properties("consumer: ${way}" PROPERTIES LABELS consumer TIMEOUT 1800)
  endforeach()
endif()

add_executable(baton_leaked_run hosts/leaked_run.cpp)
target_link_libraries(baton_leaked_run PRIVATE baton::baton)
foreach(milliseconds 100 200 300 500 800)
  add_test(NAME "leaked run: ${milliseconds} ms" COMMAND baton_leaked_run ${PROJECT_SOURCE_DIR}/samples/models/nano ${milliseconds})
  # It leaks two handles on purpose.
  set_tests_properties("leaked run: ${milliseconds} ms" PROPERTIES LABELS sdk TIMEOUT 60 ENVIRONMENT ASAN_OPTIONS=detect_leaks=0)
endforeach()

# A host beside the runner.
add_executable(baton_isolation_host hosts/isolation_host.cpp)
target_link_libraries(baton_isolation_host PRIVATE baton::baton nlohmann_json::nlohmann_json)
add_test(NAME "host: isolation" COMMAND baton_isolation_host $<TARGET_FILE:baton>)
add_test(NAME "host: isolation without Landlock" COMMAND baton_isolation_host $<TARGET_FILE:baton> without-landlock)
set_tests_properties("host: isolation" "host: isolation without Landlock" PROPERTIES LABELS sdk TIMEOUT 120)

# Hosts that treat the library badly.
foreach(host chaos signalled)
  add_executable(baton_${host}_host hosts/${host}_host.cpp)
  target_link_libraries(baton_${host}_host PRIVATE baton::baton)
  target_include_directories(baton_${host}_host PRIVATE ${PROJECT_SOURCE_DIR})
  add_test(NAME "host: ${host}" COMMAND baton_${host}_host ${PROJECT_SOURCE_DIR}/samples/models/nano)
  set_tests_properties("host: ${host}" PROPERTIES LABELS sdk TIMEOUT 3600)
endforeach()
