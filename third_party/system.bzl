# SPDX-License-Identifier: Apache-2.0
"""A repository made of headers and libraries that a system package has installed.

Only what is named is symlinked, so that Bazel neither scans all of /usr nor lets a target reach
more than it declares. A missing file fails with the package that holds it.
"""

_INCLUDE_ROOTS = ["/usr/include", "/usr/local/include"]
_LIB_ROOTS = ["/usr/lib/{}-linux-gnu", "/usr/lib64", "/usr/lib", "/usr/local/lib"]

def _missing(ctx, what):
    fail("{} is missing: `apt-get install {}` (for @{})".format(what, ctx.attr.apt, ctx.name))

def _link_headers(ctx):
    for folder in ctx.attr.headers:
        found = [root for root in _INCLUDE_ROOTS if ctx.path(root + "/" + folder).exists]
        if not found:
            _missing(ctx, "the header folder " + folder)
        ctx.symlink(found[0] + "/" + folder, "include/" + folder)

def _link_libraries(ctx):
    # A name is a whole file name, or a beginning that ends in `*`.
    if not ctx.attr.libraries:
        return
    machine = ctx.execute(["uname", "-m"]).stdout.strip()
    roots = [ctx.path(root.format(machine)) for root in _LIB_ROOTS]
    files = []
    for root in roots:
        if root.exists:
            files += [file for file in root.readdir()]
    for wanted in ctx.attr.libraries:
        prefix = wanted[:-1] if wanted.endswith("*") else None
        hits = {}
        for file in files:
            name = file.basename
            if name == wanted or (prefix and name.startswith(prefix) and name.endswith(".so")):
                hits.setdefault(name, file)
        if not hits:
            _missing(ctx, "the library " + wanted)
        for name, file in hits.items():
            ctx.symlink(file, "lib/" + name)

def _system_repository_impl(ctx):
    _link_headers(ctx)
    _link_libraries(ctx)
    ctx.symlink(ctx.attr.build_file, "BUILD")
    for package, names in ctx.attr.forwards.items():
        lines = ["package(default_visibility = [\"//visibility:public\"])"]
        for name in names:
            lines.append("alias(name = \"{}\", actual = \"{}\")".format(name, ctx.attr.forwards_to))
        ctx.file(package + "/BUILD", "\n".join(lines) + "\n")

system_repository = repository_rule(
    implementation = _system_repository_impl,
    local = True,
    configure = True,
    attrs = {
        "apt": attr.string(mandatory = True, doc = "The package that holds all of it."),
        "build_file": attr.label(mandatory = True, allow_single_file = True),
        "forwards": attr.string_list_dict(doc = "Package path to names that mean forwards_to."),
        "forwards_to": attr.string(),
        "headers": attr.string_list(doc = "Folders below the system's include folder."),
        "libraries": attr.string_list(doc = "Library files: exact names, or a beginning and `*`."),
    },
)
