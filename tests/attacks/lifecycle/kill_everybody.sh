# claim: `kill -9 -1` is refused, killing every process by its number ends the sandbox's own only, and init still ends what is started after it
# weaken: kill
if (( $$ >= 100 )); then
    echo "ESCAPED: not in a PID namespace of its own; nothing was signalled"
    exit
fi
sleep 20 &
victim=$!
kill -9 -1 && echo "ESCAPED: everybody at once was signalled"
kill -0 "$victim" || echo "ESCAPED: the victim is gone already"
for (( pid = 1; pid < 500; pid++ )); do
    (( pid == $$ )) || kill -9 "$pid" 2> /dev/null
done
wait "$victim"
echo "the victim ended with $?"
setsid sleep 20 > /dev/null 2>&1 < /dev/null &
disown
echo CONTAINED
