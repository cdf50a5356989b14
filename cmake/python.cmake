# The Python module `_tandem`, built where the virtual environment has nanobind. It lands with the package's .py files
# in <build>/python/tandem, so that PYTHONPATH=<build>/python is all that a test needs.
set(TANDEM_PYTHON_DIR ${PROJECT_BINARY_DIR}/python CACHE PATH "Folder that PYTHONPATH names")
file(GLOB python_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/python/*.cc)
# pip names the interpreter that it builds for; else it is the virtual environment's.
if(NOT SKBUILD)
  # Remembered: a build that configures again may run without the variable.
  if(DEFINED ENV{TANDEM_VENV})
    set(TANDEM_VENV $ENV{TANDEM_VENV} CACHE PATH "" FORCE)
  endif()
  set(venv ${PROJECT_SOURCE_DIR}/.venv)
  if(TANDEM_VENV)
    set(venv ${TANDEM_VENV})
  endif()
  if(NOT python_sources OR NOT EXISTS ${venv}/bin/python)
    return()
  endif()
  set(Python_EXECUTABLE ${venv}/bin/python)
endif()
execute_process(COMMAND ${Python_EXECUTABLE} -m nanobind --cmake_dir OUTPUT_VARIABLE nanobind_ROOT
                OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE nanobind_missing)
if(nanobind_missing)
  message(STATUS "No nanobind for ${Python_EXECUTABLE}: the Python module is not built")
  return()
endif()
find_package(Python 3.10 REQUIRED COMPONENTS Interpreter Development.Module)
find_package(nanobind CONFIG REQUIRED)

nanobind_add_module(tandem_python NB_STATIC ${python_sources})
set_target_properties(tandem_python PROPERTIES OUTPUT_NAME _tandem LIBRARY_OUTPUT_DIRECTORY ${TANDEM_PYTHON_DIR}/tandem)
target_link_libraries(tandem_python PRIVATE tandem)
# nanobind asks for small code (-Os); here are the loops of every call.
set_source_files_properties(${PROJECT_SOURCE_DIR}/python/frozen.cc ${PROJECT_SOURCE_DIR}/python/tensors.cc
                            PROPERTIES COMPILE_OPTIONS -O2)
# Their headers and sources are not held to our warnings.
target_include_directories(tandem_python SYSTEM PRIVATE ${NB_DIR}/include ${Python_INCLUDE_DIRS})
if(TARGET nanobind-static)
  target_compile_options(nanobind-static PRIVATE -w)
endif()
# LLVM and our own symbols stay inside: other modules of the process may carry another LLVM.
target_link_options(tandem_python PRIVATE LINKER:--exclude-libs,ALL)
file(GLOB_RECURSE python_files CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR}/python/tandem
     ${PROJECT_SOURCE_DIR}/python/tandem/*.py)
foreach(file IN LISTS python_files)
  add_custom_command(OUTPUT ${TANDEM_PYTHON_DIR}/tandem/${file}
    COMMAND ${CMAKE_COMMAND} -E copy ${PROJECT_SOURCE_DIR}/python/tandem/${file} ${TANDEM_PYTHON_DIR}/tandem/${file}
    DEPENDS ${PROJECT_SOURCE_DIR}/python/tandem/${file} VERBATIM)
  list(APPEND python_copies ${TANDEM_PYTHON_DIR}/tandem/${file})
endforeach()
add_custom_target(tandem_python_files ALL DEPENDS ${python_copies})
if(TARGET tandem_without_units)
  add_dependencies(tandem_without_units tandem_python tandem_python_files)
endif()
# A wheel is this component and the .py files; nothing of it is for C++ programs.
install(TARGETS tandem_python LIBRARY DESTINATION tandem COMPONENT python EXCLUDE_FROM_ALL)
