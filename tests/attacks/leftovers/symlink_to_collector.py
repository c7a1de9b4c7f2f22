# claim: links to what only the collecting process has (its descriptors, environment, folders) are not followed
# weaken: harvest
import os
for index, target in enumerate((
    "/proc/self/environ", "/proc/self/fd/42", "/proc/thread-self/environ", "/proc/self/cmdline", "/proc/self/maps", "/dev/stdin",
)):
    os.symlink(target, f"link{index}")
print("CONTAINED")
