# claim: a program that becomes a new program again and again uses up its CPU time all the same
# weaken: limits
# flags: --cpu-time 200ms
# limit: cpu_time
round=${ROUND:-0}
if (( round < 400 )); then
    ROUND=$(( round + 1 )) exec bash "$0" "$@"
fi
echo "ESCAPED: became a new program 400 times"
times
echo CONTAINED
