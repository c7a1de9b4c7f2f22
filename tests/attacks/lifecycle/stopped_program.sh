# claim: a program that stops itself (SIGSTOP) is ended at the wall limit
# weaken: kill
# flags: --wall 500ms
# limit: wall
sleep 15 &
kill -STOP $$
echo "ESCAPED: went on"
