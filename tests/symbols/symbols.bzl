# SPDX-License-Identifier: Apache-2.0
"""A test of one shared object's exported symbols and NEEDED entries against <its name>.golden."""

def symbols_test(shared_object, tags = [], **kwargs):
    """Declares <name>_symbols_test for a label such as `//pytorch:libebbtide.so`."""
    name = shared_object.split(":")[-1].replace(".so", "")
    native.sh_test(
        name = name + "_symbols_test",
        size = "small",
        srcs = ["symbols_test.py"],
        args = [
            "$(rootpath {})".format(shared_object),
            "$(rootpath {}.golden)".format(name),
        ],
        data = [
            name + ".golden",
            shared_object,
        ],
        # A sanitizer's runtime is one more NEEDED entry.
        tags = ["preload"] + tags,
        **kwargs
    )
