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
  -Wno-missing-field-initializers $<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage> $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict> -ffp-contract=off>)
target_link_libraries(baton_flags INTERFACE Threads::Threads)
if(BATON_SANITIZE)
  # Everywhere, samples included.
  add_compile_options(-fsanitize=${BATON_SANITIZE} -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${BATON_SANITIZE})
endif()
if(BATON_FUZZ)
  target_compile_options(baton_flags INTERFACE -fsanitize=fuzzer-no-link)
endif()

# baton_unity(target [count]): compiles the sources of each folder in groups of at most `count` (12) as one source. Reading
# the headers takes most of a source's time, so this makes a cold build several times faster. Names in anonymous
# namespaces must be unique in a folder. CMake's own UNITY_BUILD names sources by absolute paths, so that ccache would
# know none of another checkout. A source with SKIP_UNITY_BUILD_INCLUSION is compiled alone.
function(baton_unity target)
  if(BATON_UNITY)
    set(count 12)
    if(ARGN)
      set(count ${ARGN})
    endif()
    cmake_language(EVAL CODE "cmake_language(DEFER CALL baton_unity_now ${target} ${count})")
  endif()
endfunction()

function(baton_unity_now target count)
  get_target_property(sources ${target} SOURCES)
  set(folders "")
  foreach(source IN LISTS sources)
    cmake_path(ABSOLUTE_PATH source NORMALIZE)
    get_source_file_property(alone ${source} SKIP_UNITY_BUILD_INCLUSION)
    cmake_path(IS_PREFIX CMAKE_BINARY_DIR ${source} generated)
    if(NOT source MATCHES "[.]cpp$" OR alone OR generated)
      continue()
    endif()
    cmake_path(RELATIVE_PATH source BASE_DIRECTORY ${PROJECT_SOURCE_DIR} OUTPUT_VARIABLE path)
    cmake_path(GET path PARENT_PATH folder)
    string(REPLACE "/" "_" folder ${folder})
    list(APPEND folders ${folder})
    list(APPEND of_${folder} ${path})
    set_source_files_properties(${source} PROPERTIES HEADER_FILE_ONLY ON)
  endforeach()
  list(REMOVE_DUPLICATES folders)
  foreach(folder IN LISTS folders)
    list(LENGTH of_${folder} length)
    math(EXPR groups "(${length} + ${count} - 1) / ${count}")
    foreach(group RANGE 1 ${groups})
      math(EXPR begin "(${group} - 1) * ${length} / ${groups}")
      math(EXPR size "${group} * ${length} / ${groups} - ${begin}")
      list(SUBLIST of_${folder} ${begin} ${size} part)
      list(TRANSFORM part REPLACE "(.+)" "#include \"\\1\"  // NOLINT\n")
      string(JOIN "" text ${part})
      set(file ${CMAKE_CURRENT_BINARY_DIR}/${target}_unity/${folder}_${group}.cpp)
      file(CONFIGURE OUTPUT ${file} CONTENT "${text}" @ONLY)
      target_sources(${target} PRIVATE ${file})
    endforeach()
  endforeach()
endfunction()

# baton_light(target): optimises less in a release build, for code whose speed nobody waits for: it compiles a quarter faster.
function(baton_light target)
  target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O1>)
endfunction()

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
  baton_unity(${name})
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
  baton_unity(baton_test_${area})
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
