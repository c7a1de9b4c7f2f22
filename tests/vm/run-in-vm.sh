#!/usr/bin/env bash
#
# Run a command in a small virtual machine with a Debian kernel and a pure
# cgroup v2 hierarchy. See README.md beside this file.
#
# Works without KVM (software emulation), without a network and without a disk
# image: the guest's root is this machine's own file system, shared read-only
# over 9p, under a scratch layer in the guest's memory.

set -euo pipefail
# Byte semantics for the quoting of arguments, and stable tool output.
export LC_ALL=C

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
repo=$(cd "$here/../.." && pwd)

# What the guest needs to reach its root and its ports; their dependencies are
# resolved from modules.dep. Everything else is loaded on demand in the guest.
guest_modules=(virtio_pci virtio_console virtio_blk 9pnet_virtio 9p overlay ext4)
# The exit code for "the machine failed", as opposed to the command.
vm_failed=125

cache=${REDOMA_VM_CACHE:-$repo/target/vm}
timeout=900
memory=2048
as_user=0
command=()

usage() {
    cat <<'USAGE'
usage: run-in-vm.sh [--cache DIR] [--timeout SECONDS] [--memory MiB] [--user] -- COMMAND [ARGS...]

  --cache DIR        where the kernel, the initramfs and the kernel logs are kept
                     (default: $REDOMA_VM_CACHE, or target/vm in the repository)
  --timeout SECONDS  end the machine after this long (default 900)
  --memory MiB       memory of the machine (default 2048)
  --user             run COMMAND as uid 1000 in a delegated cgroup, not as root

Exits with COMMAND's exit code, or with 125 if the machine failed or timed out.
USAGE
}

die() {
    printf 'run-in-vm: %s\n' "$*" >&2
    exit "$vm_failed"
}

parse_arguments() {
    while (($#)); do
        case $1 in
            --cache | --timeout | --memory)
                (($# >= 2)) || die "$1 needs a value"
                printf -v "${1#--}" %s "$2"
                shift 2
                ;;
            --user) as_user=1; shift ;;
            --help | -h) usage; exit 0 ;;
            --) shift; command=("$@"); break ;;
            *) usage >&2; die "unknown argument: $1 (the command goes after --)" ;;
        esac
    done
    ((${#command[@]})) || { usage >&2; die "no command given"; }
    [[ $timeout =~ ^[1-9][0-9]*$ ]] || die "--timeout wants a number of seconds, not '$timeout'"
    [[ $memory =~ ^[1-9][0-9]*$ ]] || die "--memory wants a number of MiB, not '$memory'"
}

# --- what the host must have -------------------------------------------------

install_missing_tools() {
    # Some of the tools live in /sbin, which an ordinary user's PATH often lacks.
    PATH=$PATH:/usr/sbin:/sbin
    local -A package_of=(
        [qemu-system-x86_64]=qemu-system-x86 [cpio]=cpio [xz]=xz-utils [mke2fs]=e2fsprogs
        [depmod]=kmod [modprobe]=kmod [flock]=util-linux [setpriv]=util-linux
    )
    local tool missing=()
    for tool in "${!package_of[@]}"; do
        type -P "$tool" >/dev/null || missing+=("${package_of[$tool]}")
    done
    ((${#missing[@]})) || return 0
    mapfile -t missing < <(printf '%s\n' "${missing[@]}" | sort -u)
    local install=(apt-get install -y --no-install-recommends "${missing[@]}")
    ((EUID == 0)) || die "missing tools; run: sudo ${install[*]}"
    export DEBIAN_FRONTEND=noninteractive
    "${install[@]}" >&2 || { apt-get update >&2 && "${install[@]}" >&2; } ||
        die "could not install: ${missing[*]}"
}

# --- what is built once and kept in the cache --------------------------------

download_package() { # PACKAGE FOLDER
    (
        cd "$2"
        # The warning about the _apt user only says that apt downloads as root.
        apt-get download -qq "$1" 2> >(grep -v _apt >&2) ||
            { ((EUID == 0)) && apt-get update -qq >&2 && apt-get download -qq "$1" >&2; }
    ) || die "could not download the package $1"
}

# Unpack a Debian package into a folder, without installing it. The folder
# appears under its final name only once it is whole.
unpack_package() { # PACKAGE FOLDER
    local package=$1 folder=$2
    [[ ! -d $folder ]] || return 0
    printf 'run-in-vm: fetching %s\n' "$package" >&2
    rm -rf "$folder.part"
    mkdir -p "$folder.part/deb"
    if [[ $package == *.deb ]]; then
        cp "$package" "$folder.part/deb/"
    else
        download_package "$package" "$folder.part/deb"
    fi
    dpkg-deb -x "$folder.part/deb/"*.deb "$folder.part"
    rm -r "$folder.part/deb"
    mv "$folder.part" "$folder"
}

# The versioned package behind the linux-image-amd64 metapackage. Chosen once:
# later runs keep the kernel they have until the cache is removed.
kernel_package() {
    if [[ -n ${REDOMA_VM_KERNEL:-} ]]; then
        printf '%s\n' "$REDOMA_VM_KERNEL"
    else
        [[ -s $cache/kernel-package ]] || choose_kernel_package
        cat "$cache/kernel-package"
    fi
}

choose_kernel_package() {
    local package
    package=$(apt-cache depends --important linux-image-amd64 |
        sed -n 's/^ *Depends: \(linux-image-[0-9].*\)/\1/p' | head -n 1)
    [[ -n $package ]] || die "apt knows no linux-image-amd64 (is it a Debian machine with package lists?)"
    printf '%s\n' "$package" >"$cache/kernel-package"
}

# Take the ELF kernel out of the compressed image. Emulated decompression costs
# six seconds at every boot; QEMU can start the ELF directly (PVH).
extract_vmlinux() { # VMLINUZ VMLINUX
    local vmlinuz=$1 vmlinux=$2 sectors offset length
    # Fields of the x86 boot protocol: setup_sects, payload_offset, payload_length.
    sectors=$(od -An -tu1 -j $((0x1f1)) -N 1 "$vmlinuz")
    offset=$(od -An -tu4 -j $((0x248)) -N 4 "$vmlinuz")
    length=$(od -An -tu4 -j $((0x24c)) -N 4 "$vmlinuz")
    # The payload ends with four bytes that are not part of the compressed data.
    tail -c +$(((sectors + 1) * 512 + offset + 1)) "$vmlinuz" |
        head -c $((length - 4)) >"$vmlinux.payload" || true
    # Without the right tool, the image as it is: slower to boot, but as good.
    xz -dc --single-stream "$vmlinux.payload" >"$vmlinux.part" 2>/dev/null ||
        zstd -dcq "$vmlinux.payload" >"$vmlinux.part" 2>/dev/null ||
        cp "$vmlinuz" "$vmlinux.part"
    mv "$vmlinux.part" "$vmlinux"
    rm "$vmlinux.payload"
}

prepare_kernel() {
    local package name
    package=$(kernel_package)
    name=${package##*/}
    kernel_root=$cache/${name%%_*}
    kernel=$kernel_root/vmlinux
    unpack_package "$package" "$kernel_root"
    # Newer packages have their modules in /usr/lib only.
    [[ -d $kernel_root/lib ]] || ln -s usr/lib "$kernel_root/lib"
    kernel_version=$(basename "$kernel_root"/lib/modules/*)
    [[ -f $kernel_root/lib/modules/$kernel_version/modules.dep ]] ||
        depmod -b "$kernel_root" "$kernel_version"
    [[ -f $kernel ]] || extract_vmlinux "$kernel_root/boot/vmlinuz-$kernel_version" "$kernel"
}

# The files of the modules to load, each after those it depends on.
modules_in_order() {
    modprobe --dirname "$kernel_root" --set-version "$kernel_version" \
        --all --show-depends "${guest_modules[@]}" |
        awk '$1 == "insmod" && !seen[$2]++ { print $2 }'
}

prepare_initramfs() {
    unpack_package busybox-static "$cache/busybox-static"
    local busybox=$cache/busybox-static/bin/busybox key
    [[ -x $busybox ]] || busybox=$cache/busybox-static/usr/bin/busybox
    initramfs=$cache/initramfs-$kernel_version.cpio
    key=$(sha256sum "$here/init.sh" "$busybox"; echo "$kernel_version ${guest_modules[*]}")
    [[ ! -f $initramfs || $key != "$(cat "$initramfs.key" 2>/dev/null)" ]] || return 0

    local tree=$cache/initramfs.tree number=100 module
    rm -rf "$tree"
    mkdir -p "$tree"/{bin,modules,proc,sys,dev,host,scratch,root}
    cp "$busybox" "$tree/bin/busybox"
    cp "$here/init.sh" "$tree/init"
    chmod 755 "$tree/init" "$tree/bin/busybox"
    while read -r module; do
        copy_module "$module" "$tree/modules/$((number++))-"
    done < <(modules_in_order)
    ((number > 100)) || die "found no modules for the guest in $kernel_root"
    pack "$tree" >"$initramfs.part"
    mv "$initramfs.part" "$initramfs"
    printf '%s\n' "$key" >"$initramfs.key"
    rm -r "$tree"
}

copy_module() { # FILE PREFIX
    local name=${1##*/}
    case $name in
        # Newer kernels compress their modules, which busybox cannot load.
        *.xz) xz -dc "$1" >"$2${name%.xz}" ;;
        *) cp "$1" "$2$name" ;;
    esac
}

pack() { # FOLDER: as an (uncompressed) initramfs on stdout
    (cd "$1" && find . | cpio --quiet -o -H newc -R 0:0)
}

prepare_cache() {
    mkdir -p "$cache/logs"
    cache=$(cd "$cache" && pwd)
    # Runs may start side by side; only one of them builds.
    exec {lock}>"$cache/lock"
    flock "$lock"
    prepare_kernel
    prepare_initramfs
    exec {lock}>&-
}

# --- one run -----------------------------------------------------------------

# Single quotes keep every byte as it is, whatever the shell on the other side.
quote() {
    local arg
    for arg; do
        printf "'%s' " "${arg//\'/"'\\''"}"
    done
}

# The script that becomes the command inside the guest.
command_script() {
    local name
    while read -r name; do
        case $name in
            PATH | HOME | TERM | CI | REDOMA_*) printf 'export %s=%s\n' "$name" "$(quote "${!name}")" ;;
        esac
    done < <(compgen -e)
    # The unprivileged user cannot read the home of whoever runs this script.
    ((! as_user)) || printf 'export HOME=/home/user-1000\n'
    printf 'cd %s 2>/dev/null || {\n' "$(quote "$PWD")"
    printf '    echo "run-in-vm: the working directory is not reachable in the guest:" %s >&2\n' "$(quote "$PWD")"
    printf '    exit %s\n}\n' "$vm_failed"
    printf 'unset OLDPWD\nexec %s\n' "$(quote "${command[@]}")"
}

# The per-run part of the initramfs: the kernel unpacks both parts in order.
write_initrd() {
    mkdir -p "$run/tree/command"
    command_script >"$run/tree/command/command.sh"
    {
        printf 'as_user=%s\n' "$as_user"
        printf 'module_dir=%s\n' "$(quote "$kernel_root/lib/modules/$kernel_version")"
    } >"$run/tree/command/settings"
    pack "$run/tree" | cat "$initramfs" - >"$run/initrd"
}

# A real disk for /var/tmp: an overlay's upper layer cannot lie on the guest's
# own overlay root, tmpfs lacks user.* attributes before Linux 6.6, and the io
# controller needs a device. The file is sparse.
make_disk() {
    truncate -s 4G "$run/disk"
    mke2fs -q -F -t ext4 -E root_owner=0:0,lazy_itable_init=1,nodiscard "$run/disk"
}

keep_recent_logs() {
    local old
    find "$cache/logs" -name '*.log' -printf '%T@ %p\n' | sort -rn | tail -n +21 |
        while read -r _ old; do rm -f "$old"; done
}

# A child that is ended with this script, even when the script is killed.
tethered() {
    exec setpriv --pdeathsig KILL "$@"
}

start_machine() {
    local accel=${REDOMA_VM_ACCEL:-tcg,thread=multi}
    mkfifo "$run/stdout.out" "$run/stderr.out"
    # QEMU's pipe back end wants the other direction to exist as well.
    mkfifo "$run/stdout.in" "$run/stderr.in"
    tethered cat "$run/stdout.out" &
    readers=($!)
    tethered cat "$run/stderr.out" >&2 &
    readers+=($!)

    local share=path=/,security_model=none,readonly=on,multidevs=remap
    tethered qemu-system-x86_64 \
        -nodefaults -no-user-config -display none -monitor none -nic none -no-reboot \
        -machine q35 -accel "$accel" -cpu max -smp 2 -m "$memory" \
        -kernel "$kernel" -initrd "$run/initrd" \
        -append "console=ttyS0 panic=-1 cgroup_no_v1=all mitigations=off" \
        -chardev "file,id=log,path=$log" -serial chardev:log \
        -fsdev "local,id=host,$share" -device virtio-9p-pci,fsdev=host,mount_tag=host \
        -drive "file=$run/disk,format=raw,if=virtio,cache=unsafe" \
        -device virtio-serial-pci \
        -chardev "pipe,id=stdout,path=$run/stdout" -device virtserialport,name=stdout,chardev=stdout \
        -chardev "pipe,id=stderr,path=$run/stderr" -device virtserialport,name=stderr,chardev=stderr \
        -chardev "file,id=status,path=$run/status" -device virtserialport,name=status,chardev=status \
        </dev/null >"$run/qemu.log" 2>&1 &
    qemu=$!
}

end_child() { # PID...
    local pid
    for pid; do
        kill -KILL "$pid" 2>/dev/null || true
        wait "$pid" 2>/dev/null || true
    done
}

# End what this script started, by its ids, and wait until it is gone.
# shellcheck disable=SC2317 # called by the trap
stop_machine() {
    end_child "$qemu" "$watchdog" "${readers[@]}"
    [[ -z $run ]] || rm -rf "$run"
}

# One line on why there is no exit code.
failure_reason() {
    local line
    line=$(grep -a -m 1 -o -E 'Kernel panic.*|redoma-vm: .*' "$log" | tr -d '\r') && [[ -n $line ]] ||
        line=$(head -n 1 "$run/qemu.log")
    printf '%s' "${line:-the guest ended without a word}"
}

run_command() {
    run=$(mktemp -d "$cache/run.XXXXXX")
    log=$cache/logs/$(date +%Y%m%d-%H%M%S)-$$.log
    keep_recent_logs
    write_initrd
    make_disk
    start_machine
    tethered sleep "$timeout" &
    watchdog=$!
    wait -n "$qemu" "$watchdog" || true

    local status=timeout
    if ! kill -0 "$qemu" 2>/dev/null; then
        status=
        read -r status <"$run/status" || true
    fi
    end_child "$qemu"
    # With QEMU's ends closed, the readers finish once all output is passed on.
    wait "${readers[@]}" || true
    case $status in
        exit\ *) exit "${status#exit }" ;;
        timeout) die "timed out after $timeout s; kernel log: $log" ;;
        *) die "the machine failed: $(failure_reason); kernel log: $log" ;;
    esac
}

parse_arguments "$@"
qemu='' watchdog='' run='' readers=()
trap stop_machine EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP
install_missing_tools
prepare_cache
run_command
