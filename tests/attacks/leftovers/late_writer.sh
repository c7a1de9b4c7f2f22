# claim: when results are collected nobody writes them any more
# weaken: kill
nohup setsid bash -c 'for i in $(seq 40); do head -c 100000 /dev/zero >> growing; sleep 0.1; done' > /dev/null 2>&1 &
disown -a
sleep 0.2
echo CONTAINED
