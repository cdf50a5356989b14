# Tests. Every folder test/<name> with *_test.cc files is one GoogleTest executable `test_<name>`; other .cc files
# of the folder are linked in. *_slow_test.cc files make a second one, `test_<name>_slow`. A room's tests link the
# room, what it uses and the rooms that their #includes name, so that a broken room breaks only its own users;
# folders that are no room (numerics, models, ...) link everything.
# Labels: `fast` (make check, the edit loop), `slow`, `tools`; CTest runs one entry per executable, slow ones cut in
# shards. `unit` has what `make test` builds and runs once, sanitized (dev): all but TANDEM_RELEASE_TESTS of the fast
# ones. What it builds of release is the target tandem_without_units.
find_package(GTest REQUIRED)
find_package(Python3 REQUIRED COMPONENTS Interpreter)
set(TANDEM_SLOW_FOLDERS numerics conformance models)
set(TANDEM_SLOW_SHARDS 4)
# oneDNN's AMX kernels run in no sanitized build (below).
set(TANDEM_RELEASE_TESTS test_runtime)
add_custom_target(tandem_without_units)
# What takes longest begins first, so that no core waits for it alone at the end. ctest measures that
# itself from the second run on; a clean clone has only this.
set(TANDEM_LONG_TESTS property check_headers test_codegen test_driver test_loop)

function(tandem_begins_early)
  list(LENGTH TANDEM_LONG_TESTS cost)
  foreach(name IN LISTS TANDEM_LONG_TESTS)
    if(TEST ${name})
      set_tests_properties(${name} PROPERTIES COST ${cost})
    endif()
    math(EXPR cost "${cost} - 1")
  endforeach()
endfunction()

# A test's own code takes half as long to compile without optimisation, and what it tests has it.
set(TANDEM_TEST_OPTIONS -O0)

if(TANDEM_PCH)
  tandem_pch(test_pch test_pch.h ${TANDEM_TEST_OPTIONS})
  tandem_pch(api_test_pch api_test_pch.h ${TANDEM_TEST_OPTIONS})
  target_link_libraries(tandem_test_pch PRIVATE GTest::gmock)
  target_link_libraries(tandem_api_test_pch PRIVATE GTest::gmock)
endif()

# The libraries that the #include lines of files name.
function(tandem_included_rooms result)
  set(found)
  foreach(file IN LISTS ARGN)
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${file})
    file(STRINGS ${file} lines REGEX "^#include [\"<][a-z]+/")
    foreach(line IN LISTS lines)
      string(REGEX REPLACE "^#include [\"<]([a-z]+)/.*" "\\1" room "${line}")
      if(room STREQUAL "tandem")
        list(APPEND found tandem)
      elseif(room IN_LIST TANDEM_ROOMS)
        list(APPEND found tandem_${room})
      elseif(room STREQUAL "test" AND line MATCHES "\"test/support/")
        list(APPEND found tandem_test_support)
      endif()
    endforeach()
  endforeach()
  list(REMOVE_DUPLICATES found)
  set(${result} ${found} PARENT_SCOPE)
endfunction()

# Code that tests of several folders share.
file(GLOB support CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/test/support/*.cc)
file(GLOB support_headers CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/test/support/*.h)
tandem_included_rooms(support_rooms ${support} ${support_headers})
list(REMOVE_ITEM support_rooms tandem_test_support)
if(support)
  add_library(tandem_test_support STATIC ${support})
  target_link_libraries(tandem_test_support PUBLIC ${support_rooms} tandem_base GTest::gtest)
else()
  add_library(tandem_test_support INTERFACE)
  target_link_libraries(tandem_test_support INTERFACE ${support_rooms} tandem_base)
endif()

# Code that a command and a test program are both made of, compiled once.
function(tandem_test_library name)
  add_library(${name} STATIC ${ARGN})
  target_include_directories(${name} PUBLIC ${PROJECT_SOURCE_DIR})
  target_compile_definitions(${name} PRIVATE TANDEM_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  target_compile_options(${name} PRIVATE ${TANDEM_TEST_OPTIONS})
  target_link_libraries(${name} PUBLIC tandem_test_support tandem)
  if(TANDEM_PCH)
    target_link_libraries(${name} PRIVATE GTest::gtest)
    target_precompile_headers(${name} REUSE_FROM tandem_api_test_pch)
  endif()
endfunction()

# Random graphs (test/property), and the attack (test/fuzz): its files of other formats are written by
# the code of the readers' tests.
file(GLOB property_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/test/property/*.cc)
file(GLOB fuzz_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/test/fuzz/*.cc)
list(FILTER property_sources EXCLUDE REGEX "_test\\.cc$")
list(FILTER fuzz_sources EXCLUDE REGEX "_test\\.cc$")
set(changed_inputs ${PROJECT_SOURCE_DIR}/test/fuzz/attempt.cc ${PROJECT_SOURCE_DIR}/test/fuzz/mutate.cc)
list(REMOVE_ITEM fuzz_sources ${changed_inputs})
tandem_test_library(tandem_test_property ${property_sources} ${changed_inputs})
tandem_test_library(tandem_test_fuzz ${fuzz_sources} ${PROJECT_SOURCE_DIR}/test/frontend/files.cc)
target_link_libraries(tandem_test_fuzz PUBLIC tandem_test_property)

# Two tests at once on few cores: waiting threads must sleep, not spin. The leak checker takes the
# thread storage of a loaded library (oneDNN's) for a block with a header of glibc 2.19 where it lies
# 16 bytes into a page, reads bounds from what is a header of its own, and dies by signal 11, now and
# then; without the interceptor it leaves that storage out. Whole stacks of each allocation (30 calls)
# would be a fifth of the time.
set(TANDEM_TEST_ENVIRONMENT OMP_WAIT_POLICY=passive UBSAN_OPTIONS=print_stacktrace=1
                            ASAN_OPTIONS=intercept_tls_get_addr=0:malloc_context_size=6)
# Where a kernel for AMX leaves rows out, oneDNN 2.6.3 makes it by reading one entry behind its table
# of rows and not using it: signal 11 where the pages of the sanitizer's allocator end there. Its
# code is not sanitized anyway; on AMX it is tested by the other build.
# And each random graph takes ten times as long there: fewer of test/passes (80 of 400: 70 s of 290) and of
# test/property (10 of 40), so that all fits into CI's time. The release build has all.
set(TANDEM_PROPERTY_COUNT 40)
if(TANDEM_SANITIZE)
  list(APPEND TANDEM_TEST_ENVIRONMENT ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16 PARTITION_COUNT=80)
  set(TANDEM_PROPERTY_COUNT 10)
endif()

function(tandem_register_test target label)
  set(shards 1)
  set(labels ${label})
  if(label STREQUAL "fast" AND NOT target IN_LIST TANDEM_RELEASE_TESTS)
    list(APPEND labels unit)
  else()
    add_dependencies(tandem_without_units ${target})
  endif()
  if(label STREQUAL "slow" OR TANDEM_SANITIZE STREQUAL "thread")
    set(shards ${TANDEM_SLOW_SHARDS})
  endif()
  math(EXPR last "${shards} - 1")
  foreach(shard RANGE ${last})
    set(name ${target})
    set(environment "TANDEM_CACHE_DIR=${PROJECT_BINARY_DIR}/test-cache" ${TANDEM_TEST_ENVIRONMENT})
    if(shards GREATER 1)
      set(name ${target}.${shard})
      list(APPEND environment "GTEST_TOTAL_SHARDS=${shards}" "GTEST_SHARD_INDEX=${shard}")
    endif()
    add_test(NAME ${name} COMMAND ${target} --gtest_brief=1 WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
    set_tests_properties(${name} PROPERTIES LABELS "${labels}" ENVIRONMENT "${environment}" TIMEOUT 1200)
  endforeach()
endfunction()

function(tandem_test_program folder target label)
  set(sources ${ARGN})
  add_executable(${target} ${sources})
  set_target_properties(${target} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/test)
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR})
  set(pch tandem_api_test_pch)
  if(folder IN_LIST TANDEM_ROOMS)
    file(GLOB headers CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/test/${folder}/*.h)
    tandem_included_rooms(rooms ${sources} ${headers})
    target_link_libraries(${target} PRIVATE tandem_${folder} ${rooms})
    if(NOT tandem_driver IN_LIST rooms AND NOT tandem IN_LIST rooms)
      set(pch tandem_test_pch)
    endif()
  else()
    # test/examples also takes what the examples share.
    target_link_libraries(${target} PRIVATE tandem_test_support tandem
                          $<TARGET_NAME_IF_EXISTS:tandem_${folder}> $<TARGET_NAME_IF_EXISTS:tandem_test_${folder}>)
  endif()
  target_link_libraries(${target} PRIVATE GTest::gmock GTest::gtest_main)
  # EXPECT_EQ under an `if` without braces: the macro's own `else` is not ambiguous.
  target_compile_options(${target} PRIVATE -Wno-dangling-else ${TANDEM_TEST_OPTIONS})
  target_compile_definitions(${target} PRIVATE TANDEM_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  if(folder STREQUAL "codegen")
    target_include_directories(${target} SYSTEM PRIVATE ${TANDEM_LLVM_INCLUDE})
    target_link_libraries(${target} PRIVATE ${TANDEM_LLVM_LIBRARIES} ${TANDEM_LLVM_SYSTEM_LIBRARIES})
  endif()
  if(TANDEM_PCH)
    target_precompile_headers(${target} REUSE_FROM ${pch})
  endif()
  tandem_register_test(${target} ${label})
endfunction()

function(tandem_test_folder folder)
  file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/test/${folder}/*.cc)
  set(slow ${sources})
  list(FILTER slow INCLUDE REGEX "_slow_test\\.cc$")
  set(fast ${sources})
  list(FILTER fast INCLUDE REGEX "_test\\.cc$")
  list(FILTER fast EXCLUDE REGEX "_slow_test\\.cc$")
  list(FILTER sources EXCLUDE REGEX "_test\\.cc$")
  if(TARGET tandem_test_${folder})
    set(sources)
  endif()
  set(label fast)
  if(folder IN_LIST TANDEM_SLOW_FOLDERS)
    set(label slow)
  endif()
  if(fast)
    tandem_test_program(${folder} test_${folder} ${label} ${fast} ${sources})
  endif()
  if(slow)
    tandem_test_program(${folder} test_${folder}_slow slow ${slow} ${sources})
  endif()
endfunction()

file(GLOB folders CONFIGURE_DEPENDS LIST_DIRECTORIES true RELATIVE ${PROJECT_SOURCE_DIR}/test
     ${PROJECT_SOURCE_DIR}/test/*)
list(REMOVE_ITEM folders golden support tools python data conformance)
foreach(folder IN LISTS folders)
  if(IS_DIRECTORY ${PROJECT_SOURCE_DIR}/test/${folder})
    tandem_test_folder(${folder})
  endif()
endforeach()

# Golden files: `golden_runner <path>...` runs every .tir below the paths, and exits 0 when all agree.
file(GLOB golden_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/test/golden/*.cc)
if(golden_sources)
  add_executable(golden_runner ${golden_sources})
  set_target_properties(golden_runner PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/test)
  target_link_libraries(golden_runner PRIVATE tandem_test_support tandem)
  tandem_api_program(golden_runner)
  add_dependencies(tandem_without_units golden_runner)
  set(only_run)
  if(TANDEM_SANITIZE OR NOT CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    set(only_run --only-run)
  endif()
  foreach(room IN LISTS TANDEM_ROOMS ITEMS gpu)
    file(GLOB cases CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/test/golden/${room}/*.tir
         ${PROJECT_SOURCE_DIR}/test/golden/${room}/*/*.tir)
    if(cases)
      add_test(NAME golden_${room} COMMAND golden_runner ${only_run} test/golden/${room} WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
      set_tests_properties(golden_${room} PROPERTIES LABELS fast TIMEOUT 600)
    endif()
  endforeach()
endif()

function(tandem_test_command name file library)
  add_executable(${name} ${PROJECT_SOURCE_DIR}/test/${file})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/test)
  target_link_libraries(${name} PRIVATE ${library})
  tandem_api_program(${name})
  add_dependencies(tandem_without_units ${name})
  target_compile_definitions(${name} PRIVATE TANDEM_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
endfunction()

# The attack as a command: `fuzz --engine tir --seconds 60`.
tandem_test_command(fuzz fuzz/command/fuzz.cc tandem_test_fuzz)

# Random graphs through every step of schedule: `property --count 5000 --seed 1`.
tandem_test_command(property property/command/property.cc tandem_test_property)
add_test(NAME property COMMAND property --count ${TANDEM_PROPERTY_COUNT} --seed 1 --found ${PROJECT_BINARY_DIR}/property
         WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
set_tests_properties(property PROPERTIES LABELS slow TIMEOUT 1800
                                         ENVIRONMENT "${TANDEM_TEST_ENVIRONMENT}")

# Checks of the sources themselves.
foreach(script check_includes check_sizes check_names check_threads check_headers tools_test)
  add_test(NAME ${script}
           COMMAND Python3::Interpreter ${PROJECT_SOURCE_DIR}/test/tools/${script}.py
           WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
  set_tests_properties(${script} PROPERTIES LABELS tools TIMEOUT 600)
endforeach()

tandem_begins_early()

# Of these targets, those that there are.
function(tandem_depends_on name)
  foreach(target IN LISTS ARGN)
    if(TARGET ${target})
      add_dependencies(${name} ${target})
    endif()
  endforeach()
endfunction()
tandem_depends_on(tandem_without_units tandem_command ${TANDEM_PROGRAMS} bench_stream)

# What the tsan preset builds: the tests of runtime/, and the crowd that compiles and runs at once.
add_custom_target(tandem_tsan_tests)
tandem_depends_on(tandem_tsan_tests test_runtime test_runtime_slow test_threads)
