# claim: `kill -9 -1` ends the sandbox's own processes only, and init still ends what is started after it
# weaken: kill
if (( $$ >= 100 )); then
    echo "ESCAPED: not in a PID namespace of its own; nothing was signalled"
    exit
fi
sleep 20 &
victim=$!
kill -9 -1
wait "$victim"
echo "the victim ended with $?"
setsid sleep 20 > /dev/null 2>&1 < /dev/null &
disown
echo CONTAINED
