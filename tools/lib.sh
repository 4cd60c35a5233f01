# SPDX-License-Identifier: Apache-2.0
# What tools/quickstart and tools/test share: steps that stop with a reason and a remedy, system
# packages, Python environments, builds. To be sourced by bash under `set -euo pipefail`, after
# `root` (the checkout's folder) is set. Every function may be called again: it does nothing when
# its work is already there, and then needs no network.

cache="${XDG_CACHE_HOME:-$HOME/.cache}/ebbtide"

# What each environment holds. torchvision is pinned because pip would otherwise try many to find
# the one that fits.
torch_specs_2_11=(torch==2.11.0 torchvision==0.26.0)
torch_specs_2_15=(torch==2.15.0 torchvision==0.29.2)
program_specs=(numpy scikit-learn)
test_specs=(numpy scikit-learn transformers expecttest hypothesis pytest)

apt_packages=(
  g++ python3 python3-venv bazel-bootstrap libabsl-dev libspdlog-dev libfmt-dev libgtest-dev
  libgmock-dev libbenchmark-dev nlohmann-json3-dev libcli11-dev
)

say() { printf '%s\n' "$*" >&2; }
step() { current_step="$*"; say "== $*"; }

# fail REASON REMEDY: the only way out of a step that did not work.
fail() {
  say "FAILED: ${current_step:-start}"
  say "  reason: $1"
  say "  remedy: $2"
  exit 1
}

missing_packages() {
  local package
  for package in "${apt_packages[@]}"; do
    if [[ $package == bazel-bootstrap ]] && command -v bazel >/dev/null; then continue; fi
    if [[ $(dpkg-query -W -f '${Status}' "$package" 2>/dev/null) != *"ok installed" ]]; then
      echo "$package"
    fi
  done
}

ensure_system_packages() {
  step "system packages"
  command -v dpkg-query >/dev/null ||
    fail "this is not a Debian system" "install by hand: ${apt_packages[*]}"
  local missing as_root=()
  mapfile -t missing < <(missing_packages)
  [[ ${#missing[@]} -gt 0 ]] || return 0
  local line="apt-get update && apt-get install -y --no-install-recommends ${missing[*]}"
  if [[ $(id -u) -ne 0 ]]; then
    command -v sudo >/dev/null ||
      fail "not root, and no sudo; missing: ${missing[*]}" "as root: $line"
    # Without a terminal nobody could type the password.
    [[ -t 0 ]] || sudo -n true 2>/dev/null ||
      fail "sudo wants a password; missing: ${missing[*]}" "as root: $line"
    as_root=(sudo)
  fi
  say "installing ${missing[*]}"
  "${as_root[@]}" apt-get update -qq >&2 ||
    fail "apt-get update ended with $?" "check the network, then as root: $line"
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get install -y -qq --no-install-recommends "${missing[@]}" >&2 ||
    fail "apt-get install ended with $?" "read its lines above, then as root: $line"
}

# lacking PYTHON SPEC...: prints the specs that PYTHON's packages do not meet. A spec is a name or
# name==version.
lacking() {
  local python=$1
  shift
  "$python" - "$@" <<'PY'
import importlib.metadata as metadata
import sys

for spec in sys.argv[1:]:
    name, _, version = spec.partition("==")
    try:
        found = metadata.version(name)
    except metadata.PackageNotFoundError:
        found = None
    if found is None or (version and found.split("+")[0] != version):
        print(spec)
PY
}

# ensure_environment FOLDER SPEC...: a virtual environment with these packages. FOLDER/ebbtide-stamp
# lists what was seen inside, so that a complete environment costs one grep, and one that was
# interrupted is completed.
ensure_environment() {
  local folder=$1 spec complete=yes missing
  shift
  for spec in "$@"; do
    grep -qxF "$spec" "$folder/ebbtide-stamp" 2>/dev/null || complete=no
  done
  if [[ $complete == yes && -x $folder/bin/python ]]; then return 0; fi
  mkdir -p "$folder"
  exec {lock}>"$folder/ebbtide-lock"
  flock "$lock"
  if ! "$folder/bin/python" -m pip --version >/dev/null 2>&1; then
    say "making $folder"
    /usr/bin/python3 -m venv "$folder" >&2 ||
      fail "python3 -m venv ended with $?" "remove $folder and run this again"
  fi
  mapfile -t missing < <(lacking "$folder/bin/python" "$@")
  if [[ ${#missing[@]} -gt 0 ]]; then
    say "installing ${missing[*]} into $folder (a few minutes, several gigabytes for torch)"
    "$folder/bin/python" -m pip install --quiet --disable-pip-version-check "$@" >&2 ||
      fail "pip install ended with $?" "check network and disk space, then run this again"
  fi
  printf '%s\n' "$@" >>"$folder/ebbtide-stamp"
  sort -u -o "$folder/ebbtide-stamp" "$folder/ebbtide-stamp"
  exec {lock}>&-
}

# check_interpreter VARIABLE SPEC...: one that the caller brought. Nothing is installed into it.
check_interpreter() {
  local variable=$1 missing
  local python=${!variable}
  shift
  "$python" -c '' 2>/dev/null ||
    fail "$variable=$python does not run" "name a Python interpreter, or unset $variable"
  mapfile -t missing < <(lacking "$python" "$@")
  [[ ${#missing[@]} -eq 0 ]] ||
    fail "$variable=$python lacks ${missing[*]}" \
      "install that into it, or unset $variable to have an environment made"
}

# torch_of PYTHON: 2.15 for torch 2.15.0+cpu, nothing when there is none.
torch_of() {
  "$1" -c 'from importlib.metadata import version
print(".".join(version("torch").split(".")[:2]))' 2>/dev/null || true
}

# torch_python 2_15 SPEC...: sets `python` to the interpreter for that torch: the one named by
# TORCH_2_15_PYTHON, else the shared environment. SPECs are what it must hold besides torch.
torch_python() {
  local version=$1 variable="TORCH_${1}_PYTHON" pinned="torch_specs_$1[@]"
  local folder="$cache/torch-${1/_/.}.0"
  shift
  step "torch ${version/_/.}"
  if [[ -n ${!variable:-} ]]; then
    check_interpreter "$variable" torch torchvision "$@"
    python=${!variable}
    [[ $(torch_of "$python") == "${version/_/.}" ]] ||
      fail "$variable=$python has torch $(torch_of "$python")" \
        "name an interpreter with torch ${version/_/.}"
    return
  fi
  ensure_environment "$folder" "${!pinned}" "$@"
  python="$folder/bin/python"
}

bazel_flags=(--color=auto)
[[ -t 2 ]] || bazel_flags=(--noshow_progress --noshow_loading_progress)

# Bazel looks at a torch installation once a server; when the environments have changed since, it
# must look again.
refresh_torch_repositories() {
  local record now
  record="$(bazel info output_base 2>/dev/null)/ebbtide-torch-environments" ||
    fail "bazel does not start" "run: bazel info"
  now=$(
    printf '%s\n' "${TORCH_2_11_PYTHON:-}" "${TORCH_2_15_PYTHON:-}"
    stat -c '%n %Y' "$cache"/torch-*/lib/python3*/site-packages/torch/version.py 2>/dev/null ||
      true
  )
  if [[ $(cat "$record" 2>/dev/null) == "$now" ]]; then return 0; fi
  bazel sync --configure "${bazel_flags[@]}" >&2 ||
    fail "bazel sync --configure ended with $?" "read Bazel's lines above"
  printf '%s\n' "$now" >"$record"
}

# build TARGET...
build() {
  step "build"
  refresh_torch_repositories
  bazel build "${bazel_flags[@]}" -- "$@" >&2 ||
    fail "bazel build ended with $?" "read the compiler's lines above"
}
