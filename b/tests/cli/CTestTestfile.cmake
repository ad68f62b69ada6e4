# CMake generated Testfile for 
# Source directory: /tmp/me/merge/tests/cli
# Build directory: /tmp/me/merge/b/tests/cli
# 
# This file includes the relevant testing commands required for 
# testing this directory and lists subdirectories to be tested as well.
add_test([=[t_opt]=] "/tmp/me/merge/b/tests/cli/t_opt")
set_tests_properties([=[t_opt]=] PROPERTIES  TIMEOUT "120" _BACKTRACE_TRIPLES "/tmp/me/merge/tests/CMakeLists.txt;15;add_test;/tmp/me/merge/tests/cli/CMakeLists.txt;2;shoal_test;/tmp/me/merge/tests/cli/CMakeLists.txt;0;")
add_test([=[t_plan]=] "/tmp/me/merge/b/tests/cli/t_plan")
set_tests_properties([=[t_plan]=] PROPERTIES  TIMEOUT "120" _BACKTRACE_TRIPLES "/tmp/me/merge/tests/CMakeLists.txt;15;add_test;/tmp/me/merge/tests/cli/CMakeLists.txt;3;shoal_test;/tmp/me/merge/tests/cli/CMakeLists.txt;0;")
add_test([=[t_demo_server]=] "/tmp/me/merge/b/tests/cli/t_demo_server")
set_tests_properties([=[t_demo_server]=] PROPERTIES  TIMEOUT "120" _BACKTRACE_TRIPLES "/tmp/me/merge/tests/CMakeLists.txt;15;add_test;/tmp/me/merge/tests/cli/CMakeLists.txt;5;shoal_test;/tmp/me/merge/tests/cli/CMakeLists.txt;0;")
add_test([=[t_cli_text]=] "/tmp/me/merge/b/tests/cli/t_cli_text")
set_tests_properties([=[t_cli_text]=] PROPERTIES  TIMEOUT "120" _BACKTRACE_TRIPLES "/tmp/me/merge/tests/CMakeLists.txt;15;add_test;/tmp/me/merge/tests/cli/CMakeLists.txt;19;shoal_test;/tmp/me/merge/tests/cli/CMakeLists.txt;0;")
add_test([=[t_cli_run]=] "/tmp/me/merge/b/tests/cli/t_cli_run")
set_tests_properties([=[t_cli_run]=] PROPERTIES  TIMEOUT "120" _BACKTRACE_TRIPLES "/tmp/me/merge/tests/CMakeLists.txt;15;add_test;/tmp/me/merge/tests/cli/CMakeLists.txt;19;shoal_test;/tmp/me/merge/tests/cli/CMakeLists.txt;0;")
add_test([=[t_cli_demo]=] "/tmp/me/merge/b/tests/cli/t_cli_demo")
set_tests_properties([=[t_cli_demo]=] PROPERTIES  TIMEOUT "120" _BACKTRACE_TRIPLES "/tmp/me/merge/tests/CMakeLists.txt;15;add_test;/tmp/me/merge/tests/cli/CMakeLists.txt;19;shoal_test;/tmp/me/merge/tests/cli/CMakeLists.txt;0;")
