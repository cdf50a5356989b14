# The rooms, in the order of the road of the data. `tandem_room(name room...)` makes one static library from
# name/*.cc and name/*/*.cc (an interface library while there is none) that may use the rooms named after it.
# The same table, as a check of every #include, is test/tools/check_includes.py.

# Sanitized, a room takes half as long to compile without optimisation, and runs an eighth as fast: these run little.
set(TANDEM_COLD_ROOMS ops frontend nn quant driver)
set(TANDEM_COLD_OPTIONS)
if(TANDEM_SANITIZE)
  set(TANDEM_COLD_OPTIONS -O0)
endif()

# ThreadSanitizer is for rooms that know of threads (a mutex, an atomic, a cache for all): the others are functions
# over data, and come as they are from a build of the same compiler. Clean rooms that begin to keep something for all
# threads belong here: test/tools/check_threads.py looks.
set(TANDEM_ROOMS_FROM "" CACHE PATH "A build folder whose archives serve for rooms without threads")
set(TANDEM_THREADED_ROOMS base codegen runtime driver)

# Precompiled headers, which rooms share: tandem_std_pch, tandem_ops_pch for those that see operators, tandem_api_pch
# for what sees the public interface. Whose options differ needs another.
function(tandem_pch name header)
  add_library(tandem_${name} OBJECT ${PROJECT_SOURCE_DIR}/cmake/std_pch.cc)
  target_include_directories(tandem_${name} PRIVATE ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/include)
  target_link_libraries(tandem_${name} PRIVATE fmt::fmt)
  target_compile_options(tandem_${name} PRIVATE ${ARGN})
  target_precompile_headers(tandem_${name} PRIVATE "\"cmake/${header}\"")
endfunction()

if(TANDEM_PCH)
  tandem_pch(std_pch std_pch.h)
  tandem_pch(ops_pch ops_pch.h)
  tandem_pch(api_pch api_pch.h ${TANDEM_COLD_OPTIONS})
  if(TANDEM_COLD_OPTIONS)
    tandem_pch(cold_pch ops_pch.h ${TANDEM_COLD_OPTIONS})
  endif()
endif()

set(TANDEM_OPS_PCH ops frontend nn passes quant schedule)

function(tandem_room_pch name)
  set(target tandem_${name})
  if(NOT TANDEM_PCH)
    return()
  endif()
  if(EXISTS ${PROJECT_SOURCE_DIR}/${name}/llvm_headers.h)
    target_precompile_headers(${target} PRIVATE "\"${name}/llvm_headers.h\"")
  elseif(name STREQUAL "driver")
    target_precompile_headers(${target} REUSE_FROM tandem_api_pch)
  elseif(TANDEM_COLD_OPTIONS AND name IN_LIST TANDEM_COLD_ROOMS)
    target_precompile_headers(${target} REUSE_FROM tandem_cold_pch)
  elseif(name IN_LIST TANDEM_OPS_PCH)
    target_precompile_headers(${target} REUSE_FROM tandem_ops_pch)
  else()
    target_precompile_headers(${target} REUSE_FROM tandem_std_pch)
  endif()
endfunction()

# A program of the public interface, which is compiled as driver/ is.
function(tandem_api_program target)
  target_compile_options(${target} PRIVATE ${TANDEM_COLD_OPTIONS})
  target_link_libraries(${target} PRIVATE fmt::fmt)
  if(TANDEM_PCH)
    target_precompile_headers(${target} REUSE_FROM tandem_api_pch)
  endif()
endfunction()

function(tandem_room name)
  set(target tandem_${name})
  file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${name}/*.cc ${PROJECT_SOURCE_DIR}/${name}/*/*.cc)
  list(REMOVE_ITEM sources ${PROJECT_SOURCE_DIR}/driver/main.cc)
  if(sources AND TANDEM_ROOMS_FROM AND NOT name IN_LIST TANDEM_THREADED_ROOMS)
    if(NOT EXISTS ${TANDEM_ROOMS_FROM}/libtandem_${name}.a)
      message(FATAL_ERROR "TANDEM_ROOMS_FROM: ${TANDEM_ROOMS_FROM} has no libtandem_${name}.a; build it first "
                          "(cmake --preset release && cmake --build --preset release)")
    endif()
    add_library(${target} STATIC IMPORTED)
    set_target_properties(${target} PROPERTIES IMPORTED_LOCATION ${TANDEM_ROOMS_FROM}/libtandem_${name}.a)
    set(scope INTERFACE)
  elseif(sources)
    add_library(${target} STATIC ${sources})
    set(scope PUBLIC)
    if(name IN_LIST TANDEM_COLD_ROOMS)
      target_compile_options(${target} PRIVATE ${TANDEM_COLD_OPTIONS})
    endif()
    tandem_room_pch(${name})
  else()
    add_library(${target} INTERFACE)
    set(scope INTERFACE)
  endif()
  add_library(tandem::${name} ALIAS ${target})
  if(NOT TANDEM_ROOMS_FROM)
    set_target_properties(${target} PROPERTIES EXPORT_NAME ${name})
  endif()
  target_include_directories(${target} ${scope}
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}> $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
    $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>
    $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}/tandem/rooms>)
  target_compile_features(${target} ${scope} cxx_std_20)
  list(TRANSFORM ARGN PREPEND tandem_ OUTPUT_VARIABLE uses)
  target_link_libraries(${target} ${scope} ${uses})
  set_property(GLOBAL APPEND PROPERTY TANDEM_ROOMS ${name})
endfunction()

# What a room uses privately. Nothing to do while the room is empty.
function(tandem_room_private name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "INCLUDE;OPTIONS;LINK")
  get_target_property(kind tandem_${name} TYPE)
  get_target_property(imported tandem_${name} IMPORTED)
  if(imported)
    target_link_libraries(tandem_${name} INTERFACE ${arg_LINK})
    return()
  elseif(kind STREQUAL "INTERFACE_LIBRARY")
    return()
  endif()
  target_include_directories(tandem_${name} SYSTEM PRIVATE ${arg_INCLUDE})
  target_compile_options(tandem_${name} PRIVATE ${arg_OPTIONS})
  target_link_libraries(tandem_${name} PRIVATE ${arg_LINK})
endfunction()

tandem_room(base)
tandem_room(sym base)
tandem_room(abi base)
tandem_room(ir base sym abi)
tandem_room(loop base sym)
tandem_room(ops base sym ir loop)
tandem_room(frontend base sym abi ir ops)
tandem_room(nn base sym ir ops frontend)
tandem_room(passes base sym abi ir ops)
tandem_room(quant base sym ir ops)
tandem_room(schedule base sym abi ir ops loop)
tandem_room(codegen base sym abi loop)
tandem_room(runtime base abi)
tandem_room(driver base sym abi ir loop ops frontend nn passes quant schedule codegen runtime)
set(TANDEM_ROOMS base sym abi ir loop ops frontend nn passes quant schedule codegen runtime driver)

target_link_libraries(tandem_base PUBLIC fmt::fmt)
tandem_room_private(frontend LINK simdjson::simdjson)
tandem_room_private(base INCLUDE ${TANDEM_BOOST_INCLUDE})
tandem_room_private(quant INCLUDE ${TANDEM_TOML_INCLUDE})
# LLVM's classes come from another build: their vptrs and unaligned tricks are not ours to sanitize.
set(no_vptr)
if(TANDEM_SANITIZE)
  set(no_vptr -fno-sanitize=vptr)
endif()
tandem_room_private(codegen
  INCLUDE ${TANDEM_LLVM_INCLUDE}
  OPTIONS ${no_vptr}
  LINK ${TANDEM_LLVM_LIBRARIES} ${TANDEM_LLVM_SYSTEM_LIBRARIES})
set(runtime_link ${TANDEM_GOMP_LIBRARY} ${CMAKE_DL_LIBS} Threads::Threads)
if(TANDEM_LINK_DNNL)
  target_compile_definitions(tandem_runtime PRIVATE TANDEM_LINK_DNNL=1)
  list(APPEND runtime_link ${TANDEM_DNNL_LIBRARY})
endif()
tandem_room_private(runtime INCLUDE ${TANDEM_DNNL_INCLUDE} LINK ${runtime_link})

# All of it, for a C++ program that compiles; `tandem::runtime` is all that a compiled one needs.
add_library(tandem INTERFACE)
add_library(tandem::tandem ALIAS tandem)
target_link_libraries(tandem INTERFACE tandem_driver)
