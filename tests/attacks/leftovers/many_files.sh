# claim: the number of files is limited, so that collecting them is bounded
# flags: --files 600
# hits: files
# weaken: limits
mkdir many && cd many
for i in $(seq 2000); do : > "file-$i" || break; done 2>/dev/null
ls | wc -l
echo CONTAINED
