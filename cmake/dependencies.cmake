# Libraries of the distribution. Each becomes a target that rooms.cmake names.
find_package(fmt REQUIRED)
find_package(simdjson REQUIRED)
find_package(Threads REQUIRED)
# GCC's OpenMP, whatever compiles: the team of threads is libdnnl's and PyTorch's. Only its functions are called.
execute_process(COMMAND gcc -print-file-name=libgomp.so OUTPUT_VARIABLE gomp OUTPUT_STRIP_TRAILING_WHITESPACE)
cmake_path(GET gomp PARENT_PATH gomp)
find_library(TANDEM_GOMP_LIBRARY gomp HINTS ${gomp} REQUIRED)
find_path(TANDEM_BOOST_INCLUDE boost/graph/adjacency_list.hpp REQUIRED)
find_path(TANDEM_TOML_INCLUDE toml++/toml.h REQUIRED)
find_path(TANDEM_DNNL_INCLUDE dnnl.h REQUIRED)
find_library(TANDEM_DNNL_LIBRARY dnnl REQUIRED)

# LLVM 19, through llvm-config: its CMake package would drag in every target and its own flags.
find_program(TANDEM_LLVM_CONFIG NAMES llvm-config-19 HINTS /usr/lib/llvm-19/bin REQUIRED)
function(llvm_config result)
  execute_process(COMMAND ${TANDEM_LLVM_CONFIG} ${ARGN} OUTPUT_VARIABLE text
                  OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
  string(REGEX REPLACE "[ \n]+" ";" text "${text}")
  set(${result} ${text} PARENT_SCOPE)
endfunction()

if(TANDEM_SHARED_LLVM)
  set(llvm_link --link-shared)
else()
  set(llvm_link --link-static)
endif()
llvm_config(TANDEM_LLVM_INCLUDE --includedir)
llvm_config(TANDEM_LLVM_LIBRARY_DIR --libdir)
llvm_config(TANDEM_LLVM_LIBRARIES ${llvm_link} --libfiles orcjit x86 nvptx passes)
llvm_config(TANDEM_LLVM_SYSTEM_LIBRARIES ${llvm_link} --system-libs)
