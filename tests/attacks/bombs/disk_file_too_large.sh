# claim: a program that writes past the largest allowed file is ended, and the disk limit is named
# weaken: rlimits
# flags: --disk 8MiB
# limit: disk
# `truncate` is a child; here the shell itself must be hit, which writes what its builtins print.
exec 3<>bomb
truncate -s 8388608 bomb
exec 3>>bomb
echo one more >&3
echo "ESCAPED: the file has $(stat -c %s bomb) bytes"
echo CONTAINED
