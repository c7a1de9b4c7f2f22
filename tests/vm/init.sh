#!/bin/busybox sh
# shellcheck shell=dash
#
# Process 1 of the guest. It runs twice: first from the initramfs, to build the
# root file system and switch to it, then on that root, to run the command.
# A chroot would not do: the kernel refuses user namespaces inside one.

set -eu

# What the host says of this run, in the file "settings": whether to run as the
# unprivileged user, and where the host keeps the kernel's modules.
as_user=0
module_dir=

# On the new root, our own tools live here, apart from the host's.
home=/run/redoma-vm

# The host reads the first of these lines in the kernel log when there is no
# exit code. -no-reboot turns the reboot into the end of the machine.
die() {
    echo "<2>redoma-vm: $*" >/dev/kmsg
    reboot -f
}

# Any failed step below ends the machine (set -e); say so.
trap 'die "the guest could not be set up"' EXIT

# --- first: from the initramfs -----------------------------------------------

load_modules() {
    for module in /modules/*.ko; do
        insmod "$module" || die "cannot load $module"
    done
}

mount_root() {
    # loose: the host's files are taken not to change while the guest runs, so
    # they are cached. msize is the most that virtio can carry in one message.
    mount -t 9p -o ro,trans=virtio,version=9p2000.L,msize=512000,cache=loose host /host ||
        die "cannot mount the host's file system"
    mount -t tmpfs -o mode=755 scratch /scratch
    mkdir /scratch/upper /scratch/work
    mount -t overlay -o lowerdir=/host,upperdir=/scratch/upper,workdir=/scratch/work root /root ||
        die "cannot mount the scratch layer"
}

# A device whose first use loads its module; udev would make it.
make_node() { # MODE PATH MINOR
    [ -e "$2" ] || mknod "$2" c 10 "$3"
    chmod "$1" "$2"
}

# Each is a fresh mount: nothing of the host's own /proc, /dev, /tmp or /run is
# seen. The flags are those of real machines (systemd): a user namespace may not
# clear them, which sandboxes must respect when they remount.
mount_system() {
    mkdir -p /root/proc /root/sys /root/dev /root/tmp /root/run /root/var/tmp
    mount -t ext4 /dev/vda /root/var/tmp || die "cannot mount the disk"
    chmod 1777 /root/var/tmp
    mount -t tmpfs -o mode=1777,nosuid,nodev tmp /root/tmp
    mount -t tmpfs -o mode=755,nosuid,nodev run /root/run
    mkdir -p /root/run/lock /dev/pts /dev/shm /dev/mqueue
    mount -t devpts -o nosuid,noexec,gid=5,mode=620,ptmxmode=666 devpts /dev/pts
    mount -t tmpfs -o mode=1777,nosuid,nodev shm /dev/shm
    mount -t mqueue -o nosuid,nodev,noexec mqueue /dev/mqueue
    mkdir -p /dev/net
    make_node 666 /dev/fuse 229
    make_node 666 /dev/net/tun 200
    make_node 660 /dev/loop-control 237
    ln -sf /proc/self/fd /dev/fd
    ln -sf fd/0 /dev/stdin
    ln -sf fd/1 /dev/stdout
    ln -sf fd/2 /dev/stderr
    mount -t securityfs -o nosuid,nodev,noexec securityfs /sys/kernel/security
    mount -t cgroup2 -o nosuid,nodev,noexec,nsdelegate,memory_recursiveprot cgroup2 /sys/fs/cgroup ||
        die "cannot mount cgroup2"
    mount --move /proc /root/proc
    mount --move /sys /root/sys
    mount --move /dev /root/dev
}

# Let the kernel find its other modules when something asks for them.
link_modules() {
    mkdir -p /root/lib/modules
    [ ! -d "/root$module_dir" ] || ln -sfn "$module_dir" "/root/lib/modules/$(uname -r)"
}

build_root() {
    /bin/busybox --install -s /bin
    mount -t proc -o nosuid,nodev,noexec proc /proc
    mount -t sysfs -o nosuid,nodev,noexec sysfs /sys
    mount -t devtmpfs -o nosuid dev /dev
    # shellcheck source=/dev/null
    . /command/settings
    load_modules
    mount_root
    mount_system
    link_modules
    mkdir -p "/root$home/bin"
    cp /bin/busybox "/root$home/bin/busybox"
    cp /init "/root$home/init"
    cp /command/* "/root$home/"
    exec switch_root /root "$home/bin/busybox" sh "$home/init" run
}

# --- then: on the new root ---------------------------------------------------

port() { # NAME: the device of the virtio port with this name
    for entry in /sys/class/virtio-ports/*; do
        [ "$(cat "$entry/name" 2>/dev/null)" != "$1" ] || echo "/dev/${entry##*/}"
    done
}

# As systemd's Delegate=yes does: the user owns the folder and the three files
# that shape the tree below it, not the limits of the folder itself. The
# command starts directly in it, so its subtree_control is empty: a cgroup with
# processes cannot also have controllers below it.
delegate_cgroup() {
    group=/sys/fs/cgroup/user-1000
    echo "+cpu +io +memory +pids" >/sys/fs/cgroup/cgroup.subtree_control
    mkdir "$group"
    chown 1000:1000 "$group" "$group/cgroup.procs" "$group/cgroup.subtree_control" "$group/cgroup.threads"
}

make_user() {
    grep -q '^[^:]*:[^:]*:1000:' /etc/passwd ||
        echo "user-1000:x:1000:1000::/home/user-1000:/bin/sh" >>/etc/passwd
    grep -q '^[^:]*:[^:]*:1000:' /etc/group || echo "user-1000:x:1000:" >>/etc/group
    mkdir -p /home/user-1000
    chown 1000:1000 /home/user-1000
}

# The command reads its output's pipes by name when it opens /dev/stdout, so
# they are its own.
make_pipes() {
    mkfifo "$home/stdout" "$home/stderr"
    chmod 666 "$home/stdout" "$home/stderr"
    cat "$home/stdout" >"$(port stdout)" &
    readers=$!
    cat "$home/stderr" >"$(port stderr)" &
    readers="$readers $!"
}

# Runs in a child of process 1, which it replaces with the command.
become_command() {
    # setpriv, env and sh are the host's: busybox's shell would prefer its own
    # tools to those on the PATH.
    set -- /usr/bin/env -i /bin/sh "$home/command.sh"
    if [ "$as_user" = 1 ]; then
        echo 0 >/sys/fs/cgroup/user-1000/cgroup.procs
        set -- /usr/bin/setpriv --reuid 1000 --regid 1000 --clear-groups --reset-env "$@"
    fi
    exec setsid "$@"
}

readers_left() {
    for reader in $readers; do
        ! kill -0 "$reader" 2>/dev/null || return 0
    done
    return 1
}

# The machine ends with its command. What that has left behind may still hold
# the pipes: end it, then let the readers pass on the last output.
end_leftovers() {
    while readers_left; do
        for entry in /proc/[0-9]*; do
            case " 1 $readers " in
                *" ${entry#/proc/} "*) ;;
                *) kill -9 "${entry#/proc/}" 2>/dev/null || true ;;
            esac
        done
        sleep 0.05
    done
}

run_command() {
    "$home/bin/busybox" --install -s "$home/bin"
    # shellcheck source=/dev/null
    . "$home/settings"
    # The default of real machines (systemd), which sandboxes must cope with.
    mount --make-rshared /
    hostname redoma-vm
    ip link set lo up
    if [ "$as_user" = 1 ]; then
        make_user
        delegate_cgroup
    fi
    make_pipes
    code=0
    (become_command) </dev/null >"$home/stdout" 2>"$home/stderr" &
    wait $! || code=$?
    end_leftovers
    echo "exit $code" >"$(port status)"
    reboot -f
}

if [ "${1:-}" = run ]; then
    export PATH=$home/bin
    run_command
else
    export PATH=/bin
    build_root
fi
