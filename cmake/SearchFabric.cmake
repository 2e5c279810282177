# Build rules shared by every folder: module libraries, tests, fuzzers and benchmarks.

include(CheckCCompilerFlag)
find_package(PkgConfig REQUIRED)
find_package(Threads REQUIRED)

option(SF_WERROR "Treat warnings as errors" ON)
option(SF_JEMALLOC "Link the daemon with jemalloc" OFF)
set(SF_SANITIZE "" CACHE STRING "Comma separated sanitizers, empty for none")
option(SF_FUZZ "Build the fuzzers (clang only)" OFF)
option(SF_MUTANTS "Compile in the switches that remove one fence each (tests only)" ON)

add_library(sf_options INTERFACE)
target_compile_options(sf_options INTERFACE
    -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wstrict-prototypes -Wmissing-prototypes -Wvla
    $<$<BOOL:${SF_WERROR}>:-Werror> -fno-omit-frame-pointer -g)
target_compile_definitions(sf_options INTERFACE _GNU_SOURCE
    $<$<BOOL:${SF_MUTANTS}>:SF_MUTANTS=1>)
target_include_directories(sf_options INTERFACE ${CMAKE_SOURCE_DIR}/src)
target_link_libraries(sf_options INTERFACE Threads::Threads)

if(SF_SANITIZE)
    target_compile_options(sf_options INTERFACE -fsanitize=${SF_SANITIZE} -fno-sanitize-recover=all)
    target_link_options(sf_options INTERFACE -fsanitize=${SF_SANITIZE})
    target_compile_definitions(sf_options INTERFACE SF_SANITIZED=1)
endif()
if(SF_FUZZ)
    target_compile_options(sf_options INTERFACE -fsanitize=fuzzer-no-link)
endif()
if(CMAKE_BUILD_TYPE STREQUAL "Release" OR CMAKE_BUILD_TYPE STREQUAL "RelWithDebInfo")
    target_compile_options(sf_options INTERFACE -D_FORTIFY_SOURCE=2 -fstack-protector-strong -fPIE)
    target_link_options(sf_options INTERFACE -pie -Wl,-z,relro,-z,now)
endif()

# sf_pkg(NAME pkg-config-module...) makes the imported target sf_pkg_NAME with system includes.
function(sf_pkg name)
    if(NOT TARGET PkgConfig::SFPKG_${name})
        pkg_check_modules(SFPKG_${name} REQUIRED IMPORTED_TARGET GLOBAL ${ARGN})
    endif()
    if(NOT TARGET sf_pkg_${name})
        add_library(sf_pkg_${name} INTERFACE IMPORTED GLOBAL)
        target_link_libraries(sf_pkg_${name} INTERFACE PkgConfig::SFPKG_${name})
    endif()
endfunction()

function(sf_add_directory dir)
    if(EXISTS ${CMAKE_SOURCE_DIR}/${dir}/CMakeLists.txt)
        add_subdirectory(${CMAKE_SOURCE_DIR}/${dir})
    endif()
endfunction()

# sf_module(NAME SOURCES file... DEPS target...) makes the static library sf_NAME.
function(sf_module name)
    cmake_parse_arguments(ARG "" "" "SOURCES;DEPS" ${ARGN})
    add_library(sf_${name} STATIC ${ARG_SOURCES})
    target_link_libraries(sf_${name} PUBLIC sf_options ${ARG_DEPS})
endfunction()

# sf_program(NAME SOURCES file... DEPS target...) makes an executable in bin/.
function(sf_program name)
    cmake_parse_arguments(ARG "" "" "SOURCES;DEPS" ${ARGN})
    add_executable(${name} ${ARG_SOURCES})
    target_link_libraries(${name} PRIVATE sf_options ${ARG_DEPS})
endfunction()

# sf_test(NAME SOURCES file... DEPS target... LABELS label... TIMEOUT seconds ARGS arg...)
# makes a cmocka executable and its CTest entry. The default label is "unit".
function(sf_test name)
    cmake_parse_arguments(ARG "" "TIMEOUT" "SOURCES;DEPS;LABELS;ARGS" ${ARGN})
    if(NOT ARG_LABELS)
        set(ARG_LABELS unit)
    endif()
    if(NOT ARG_TIMEOUT)
        set(ARG_TIMEOUT 120)
    endif()
    sf_pkg(CMOCKA cmocka)
    add_executable(${name} ${ARG_SOURCES})
    target_link_libraries(${name} PRIVATE sf_options ${ARG_DEPS} sf_test_support sf_pkg_CMOCKA)
    target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR}/tests)
    add_test(NAME ${name} COMMAND ${name} ${ARG_ARGS})
    set_tests_properties(${name} PROPERTIES LABELS "${ARG_LABELS}" TIMEOUT ${ARG_TIMEOUT}
        ENVIRONMENT "TSAN_OPTIONS=ignore_noninstrumented_modules=1:halt_on_error=1")
endfunction()

# sf_fuzzer(NAME SOURCES file... DEPS target...) makes a libFuzzer executable in the fuzz preset only.
function(sf_fuzzer name)
    cmake_parse_arguments(ARG "" "" "SOURCES;DEPS" ${ARGN})
    if(SF_FUZZ)
        add_executable(${name} ${ARG_SOURCES})
        target_link_libraries(${name} PRIVATE sf_options ${ARG_DEPS})
        target_link_options(${name} PRIVATE -fsanitize=fuzzer)
        set_property(GLOBAL APPEND PROPERTY SF_FUZZERS ${name})
    endif()
endfunction()
