# SPDX-License-Identifier: Apache-2.0
# BATON_BUNDLE: libraries whose versions differ between distributions are linked statically, so that one program and one
# shared library run on all of them (./dev package). libcurl and OpenSSL, which are kept safe by updates, libseccomp,
# which is under the LGPL, and the C and C++ libraries have stable interfaces and stay those of the machine.

find_library(BATON_PCRE2_A libpcre2-8.a REQUIRED)
find_library(BATON_UTF8PROC_A libutf8proc.a REQUIRED)
find_library(BATON_XXHASH_A libxxhash.a REQUIRED)

set_property(TARGET PkgConfig::PCRE2 PROPERTY INTERFACE_LINK_LIBRARIES ${BATON_PCRE2_A})
set_property(TARGET PkgConfig::UTF8PROC PROPERTY INTERFACE_LINK_LIBRARIES ${BATON_UTF8PROC_A})
set_property(TARGET PkgConfig::XXHASH PROPERTY INTERFACE_LINK_LIBRARIES ${BATON_XXHASH_A})

# baton_replace(target archive): what links the imported library links the archive.
function(baton_replace target archive)
  get_target_property(configurations ${target} IMPORTED_CONFIGURATIONS)
  foreach(configuration IN LISTS configurations)
    set_property(TARGET ${target} PROPERTY IMPORTED_LOCATION_${configuration} ${archive})
  endforeach()
  set_property(TARGET ${target} PROPERTY IMPORTED_LOCATION ${archive})
endfunction()

# baton_compiled(target name sources...): the same with an archive made of sources.
function(baton_compiled target name)
  add_library(baton_static_${name} STATIC ${ARGN})
  target_include_directories(baton_static_${name} PRIVATE $<TARGET_PROPERTY:${target},INTERFACE_INCLUDE_DIRECTORIES>)
  baton_replace(${target} ${CMAKE_CURRENT_BINARY_DIR}/libbaton_static_${name}.a)
  add_dependencies(${target} baton_static_${name})
endfunction()

baton_compiled(fmt::fmt fmt cmake/static/fmt.cpp)
baton_compiled(hwy::hwy highway cmake/static/highway.cpp)
if(BATON_SHARED AND NOT BATON_STATIC)
  # The distribution's archive is for programs: it refers to data of libstdc++ as if it were in the same file.
  set(yaml ${PROJECT_BINARY_DIR}/yaml-cpp)
  execute_process(COMMAND ${PROJECT_SOURCE_DIR}/cmake/static/yaml.sh ${yaml} COMMAND_ERROR_IS_FATAL ANY)
  file(GLOB sources ${yaml}/src/*.cpp ${yaml}/src/contrib/*.cpp)
  baton_compiled(${BATON_YAML} yaml ${sources})
else()
  find_library(BATON_YAML_A libyaml-cpp.a REQUIRED)
  baton_replace(${BATON_YAML} ${BATON_YAML_A})
endif()
