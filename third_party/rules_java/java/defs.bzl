# SPDX-License-Identifier: Apache-2.0
"""The Java rules that Bazel 4.2's own tool packages ask for while it loads its C++ and test
support."""

java_binary = native.java_binary
java_import = native.java_import
java_library = native.java_library
java_package_configuration = native.java_package_configuration
java_plugin = native.java_plugin
java_runtime = native.java_runtime
java_test = native.java_test
java_toolchain = native.java_toolchain
