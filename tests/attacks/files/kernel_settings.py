# claim: no setting of the kernel can be read or opened for writing
# weaken: mask_proc
import os
null = os.stat("/dev/null").st_rdev
# Only opened, never written to.
for path in (
    "sys/kernel/core_pattern", "sys/kernel/modprobe", "sys/kernel/hostname", "sys/kernel/randomize_va_space",
    "sys/vm/drop_caches", "sys/vm/overcommit_memory", "sys/fs/suid_dumpable", "sys/fs/protected_symlinks",
    "sys/fs/binfmt_misc/register", "sys/user/max_user_namespaces", "sys/net/ipv4/ip_forward", "sysrq-trigger", "kcore",
    "mtrr", "irq/0/smp_affinity", "acpi/wakeup", "bus/pci/00/00.0", "scsi/scsi",
):
    for way, flags in (("reading", os.O_RDONLY), ("writing", os.O_WRONLY)):
        try:
            fd = os.open("/proc/" + path, flags)
            if os.fstat(fd).st_rdev == null:
                print("covered:", path)
            else:
                print("ESCAPED:", path, "is open for", way)
        except OSError as error:
            print("refused:", path, way, error.strerror)
print("CONTAINED")
