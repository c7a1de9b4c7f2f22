# claim: a program starts with descriptors 0, 1 and 2, all of them pipes of its own run, and no other
# weaken: close_fds
# 255 is where bash keeps the script itself. Listed by a child, whose own descriptors don't disturb.
ls -l /proc/$$/fd > /tmp/list
while read -r _ _ _ _ _ _ _ _ number _ place; do
  case $number:$place in
    :) ;;
    [012]:pipe:*) echo "$number is a pipe" ;;
    255:/mnt/data/*) echo "255 is the script" ;;
    *) echo "ESCAPED: descriptor $number is $place" ;;
  esac
done < /tmp/list
echo CONTAINED
