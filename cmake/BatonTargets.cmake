# SPDX-License-Identifier: Apache-2.0
# Flags that every target of the project shares, and the shapes of target there are: a layer, a room with libcurl, a test.

add_library(baton_flags INTERFACE)
target_include_directories(baton_flags INTERFACE
  ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/sdk/include ${PROJECT_SOURCE_DIR}/engine/base)
# -ffp-contract=off: a product is fused with a sum only where the source says fma, so that a row's result
# does not depend on what the compiler saw around it.
if(WIN32)
  target_compile_definitions(baton_flags INTERFACE NOMINMAX WIN32_LEAN_AND_MEAN)  # fewer macros of windows.h
endif()
target_compile_options(baton_flags INTERFACE $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<NOT:$<CXX_COMPILER_ID:MSVC>>>:-Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor
  -Wno-missing-field-initializers $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict> -ffp-contract=off>)
target_link_libraries(baton_flags INTERFACE Threads::Threads)
if(BATON_SANITIZE)
  # Everywhere, samples included.
  add_compile_options(-fsanitize=${BATON_SANITIZE} -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${BATON_SANITIZE})
endif()
if(BATON_FUZZ)
  target_compile_options(baton_flags INTERFACE -fsanitize=fuzzer-no-link)
endif()

# baton_layer(name [dependencies...]): a static library of all sources in the folder of the calling CMakeLists.txt and in
# its rooms; a room that has a CMakeLists.txt of its own is a library of its own.
function(baton_layer name)
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cpp)
  file(GLOB_RECURSE lists CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*/CMakeLists.txt)
  foreach(list IN LISTS lists)
    get_filename_component(room ${list} DIRECTORY)
    if(NOT room STREQUAL CMAKE_CURRENT_SOURCE_DIR)
      list(FILTER sources EXCLUDE REGEX "^${room}/")
    endif()
  endforeach()
  add_library(${name} STATIC ${sources})
  target_link_libraries(${name} PUBLIC $<BUILD_INTERFACE:baton_flags> PRIVATE $<BUILD_INTERFACE:fmt::fmt> ${ARGN})
endfunction()

# baton_http_room(name source dependency): a library of `source` with libcurl, for the folder of the calling
# CMakeLists.txt. Without libcurl, or in a program that is to need nothing but the C library, its no_http.cpp says so.
function(baton_http_room name source dependency)
  set(missing "")
  if(BATON_STATIC)
    set(missing "it was linked statically (BATON_STATIC)")
  elseif(NOT CURL_FOUND)
    set(missing "libcurl 7.85 was not found when it was configured (package libcurl4-openssl-dev)")
    message(STATUS "${name}: ${missing}")
  endif()
  if(missing)
    add_library(${name} STATIC no_http.cpp)
    target_compile_definitions(${name} PRIVATE BATON_NO_HTTP="${missing}")
  else()
    add_library(${name} STATIC ${source})
    target_link_libraries(${name} PRIVATE CURL::libcurl)
  endif()
  target_link_libraries(${name} PUBLIC ${dependency} PRIVATE $<BUILD_INTERFACE:baton_flags> $<BUILD_INTERFACE:fmt::fmt>)
endfunction()

# baton_test(area "folder;..." [libraries...]): one Catch2 executable of all tests in the folders and their rooms, each case
# known to CTest.
function(baton_test area folders)
  list(TRANSFORM folders REPLACE "(.+)" "${PROJECT_SOURCE_DIR}/tests/\\1/*.cpp")
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${folders})
  if(NOT sources)
    return()
  endif()
  add_executable(baton_test_${area} ${sources})
  target_link_libraries(baton_test_${area} PRIVATE baton_test_main baton_flags fmt::fmt ${ARGN})
  target_compile_definitions(baton_test_${area} PRIVATE
    BATON_TEST_DIR="${PROJECT_SOURCE_DIR}/tests" BATON_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  set_target_properties(baton_test_${area} PROPERTIES POSITION_INDEPENDENT_CODE OFF)  # as the precompiled header has it
  target_precompile_headers(baton_test_${area} REUSE_FROM baton_test_main)
  # Tests of tools count processes and temporary folders: nothing else runs beside them.
  if(area STREQUAL "agents")
    set(serial TRUE)
  else()
    set(serial FALSE)
  endif()
  # A case whose name CMake cannot hold (it splits at semicolons) would match nothing and pass.
  if(Catch2_VERSION VERSION_LESS 3)
    set(strict EXTRA_ARGS --warn NoTests)
  endif()
  catch_discover_tests(baton_test_${area} TEST_PREFIX "${area}: " ${strict}
    PROPERTIES LABELS ${area} TIMEOUT 600 RUN_SERIAL ${serial})
endfunction()
