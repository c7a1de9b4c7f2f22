# claim: the CPU time of children that have ended still counts
# weaken: limits
# flags: --cpu-time 200ms
# limit: cpu_time
for (( i = 0; i < 400; i++ )); do
    /usr/bin/true
done
echo "ESCAPED: ran 400 programs"
times
echo CONTAINED
